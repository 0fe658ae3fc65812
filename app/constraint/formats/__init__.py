"""The formats of JSON Schema as trees of regular expressions.

strict   what every validator takes for a format: for answers
loose    what any validator takes for it: for negations
regexes  the format ``regex``, which nests
"""
