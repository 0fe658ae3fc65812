"""Context-free grammars, in GBNF (llama.cpp) or a subset of Lark's notation, as byte expressions.

``gbnf`` and ``lark`` read a text into the rules of ``syntax``; ``common`` and ``regexes`` know the
terminals and regular expressions that Lark grammars use. ``rules`` finds what refers to what and
what is wrong, ``lowering`` turns the rules into expressions, ``depth`` refuses what would be
nested too deeply to follow.

The language of a grammar is the set of texts that its rules derive, character by character. There
is no lexer in between: where Lark's lexer would take the longest match, a text is in the language
if there is any way to split it.
"""

from __future__ import annotations

from app.constraint.grammar.lowering import lower
from app.constraint.grammar.reading import read

__all__ = ["lower", "read"]
