"""JSON text in the one form that answers have.

whitespace  where white space stands
numbers/    ranges, decimals, multiples, and what is left without them
text        strings, members, containers, any value
"""
