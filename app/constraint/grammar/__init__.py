"""Context-free grammars, in GBNF (llama.cpp) or a subset of Lark's notation, as byte expressions.

syntax            the syntax tree of both notations, and errors that point into the text
gbnf              the notation of llama.cpp
regexes           the regular expressions of Lark grammars
lark              Lark's notation, and the terminals that it imports
rules             from a text to its rules, and what is known of every rule
lowering          from rules to expressions, without ambiguous operators and left recursion
complexity        refuses what is nested too deeply to follow

The language of a grammar is the set of texts that its rules derive, character by character. There
is no lexer in between: where Lark's lexer would take the longest match, a text is in the language
if there is any way to split it.
"""
