"""Regular expressions (ECMA-262) as byte expressions.

classes        sets of characters that dialects read differently
syntax         the tree, and what is wrong with a pattern
parser         from a pattern to its tree
lookaround     what look-around and anchors need to know of a tree
lowering       from the tree to an expression
continuations  the same for patterns with look-around, from their end to their start
"""
