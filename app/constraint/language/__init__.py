"""Languages over bytes: what every front end builds, and what the automaton runs.

nodes        expressions as numbers in a pool, each made once
inclusion    whether one language plainly lies within another
expressions  the algebra: union, intersection, complement, repetition
codepoints   sets of Unicode characters and their UTF-8
rows         all derivatives of an expression at once
widths       how many characters strings have, and strings within a number of them
derivatives  which of them are alive, and their shortest strings
rewriting    drops temporary expressions of a pool, or bytes that have no token
"""
