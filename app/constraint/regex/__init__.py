"""Regular expressions (ECMA-262) as byte expressions.

classes        sets of characters that dialects read differently
syntax         the tree, and what is wrong with a pattern
parser         from a pattern to its tree
lookaround     patterns with look-around, translated from their end to their start
lowering       from the tree to an expression
"""
