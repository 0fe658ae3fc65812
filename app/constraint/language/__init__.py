"""Languages over bytes: the expressions that front ends build and the automaton runs.

nodes        expressions as numbers in a pool, each made once
inclusion    cheap tests whether one language lies within another
cases        concatenations whose parts depend on independent choices
remainders   digits that end a multiple, or a non-multiple
expressions  the algebra: union, intersection, complement, repetition
codepoints   sets of Unicode characters and their UTF-8
rows         all derivatives of an expression at once
widths       bounds of the characters in strings, and strings within bounds
derivatives  which derivatives are alive, and shortest strings
counting     numbers of strings, and the shortest of them in order
rewriting    drops temporary expressions of a pool, or bytes that have no token
"""
