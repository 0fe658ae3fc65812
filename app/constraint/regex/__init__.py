"""Regular expressions (ECMA-262) as byte expressions.

``codepoints`` holds sets of code points, ``syntax`` the tree, ``parser`` reads a pattern into the
tree, ``lowering`` turns the tree into an expression.
"""
