"""Context-free grammars, in GBNF (llama.cpp) or a subset of Lark's notation, as byte expressions.

syntax            the syntax tree of both notations, and errors that point into the text
gbnf              the notation of llama.cpp
regexes           the regular expressions of Lark grammars
lark              Lark's notation, and the terminals that it imports
rules             from a text to its rules, and facts about every rule
lowering          from rules to expressions, without ambiguous operators and left recursion
complexity        refuses grammars that nest too deeply or are too ambiguous

The language of a grammar is the set of texts that its rules derive, character by character, without
a lexer: while Lark's lexer takes the longest match, a text is in our language if it can be split in
any way.
"""
