"""Choices of an answer while it comes: found, scored by the model, and, where asked, drawn.

cursor   an answer's text as it grows -> the choices in it
ways     a choice -> the tokens that spell its ways, as a tree, and what is to be scored at each
scoring  one choice of one sequence: what it computes in steps, and what comes of it
"""
