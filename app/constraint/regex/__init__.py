"""Regular expressions (ECMA-262) as byte expressions.

classes        sets of characters that dialects read differently
syntax         the tree, and errors of patterns
parser         from a pattern to its tree
lookaround     patterns with look-around, translated from end to start
lowering       from the tree to an expression
"""
