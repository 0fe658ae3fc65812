"""Choices of an unfinished answer: found, scored by the model and, if asked for, sampled.

cursor   finds the choices in the text of an answer as it grows
ways     the ways of a choice as a tree of tokens, with the token sets to score at each node
scoring  one choice of one sequence: the passes it takes, and its result
"""
