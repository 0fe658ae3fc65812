"""From a grammar's text to its rules: which notation, and how large it may be."""

from __future__ import annotations

import re

from app.constraint.grammar.gbnf import GbnfReader
from app.constraint.grammar.groups import Reader
from app.constraint.grammar.lark import LarkReader
from app.constraint.grammar.syntax import Rules, Source
from app.constraint.limits import Limits
from app.core.errors import ConstraintTooComplex, InvalidSchema

MAX_CHARACTERS = 1 << 18
_READERS: dict[str, type[Reader]] = {"gbnf": GbnfReader, "lark": LarkReader}
_GBNF_RULE = re.compile(r"^[ \t]*[A-Za-z0-9_-]++[ \t]*::=", re.MULTILINE)


def parse(text: str, syntax: str, limits: Limits) -> Rules:
    """The rules of ``text``; ``syntax`` is ``gbnf``, ``lark``, or ``auto``: a line that starts
    with ``name ::=`` makes it GBNF.

    Raises ``InvalidSchema`` with line, column and an excerpt, ``UnsupportedSchema`` with the
    construct by name, or ``ConstraintTooComplex``.
    """
    if len(text) > MAX_CHARACTERS:
        raise ConstraintTooComplex(f"a grammar of more than {MAX_CHARACTERS} characters")
    if re.search("[\ud800-\udfff]", text):
        raise InvalidSchema("the grammar contains half of a surrogate pair")
    if syntax == "auto":
        syntax = "gbnf" if _GBNF_RULE.search(text) else "lark"
    if syntax not in _READERS:
        raise InvalidSchema(f"the syntax of a grammar must be auto, gbnf or lark, not {syntax!r}")
    return _READERS[syntax](Source(text), limits).read()
