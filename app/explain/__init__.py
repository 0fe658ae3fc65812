"""Explanations of a constraint: where a text leaves it, and its graph.

spelling   bytes and expressions as readable text
check      a text against a program: where it stops and what may follow there
measures   facts about expressions, and the texts that the graph draws as one choice
graph      the compressed automaton, bounded: branch points, choices, leaps
marks      expressions with and without the places in a schema that mark them
exploring  makes the graph; folds large values
walk       the ways of a graph that a text takes
keywords   the treatment of every keyword of a schema
report     all of it as JSON
drawing    the layout of a graph
svg        its elements as SVG, for files and the page, and the graph for Graphviz
picture    drawing and walks as JSON for the page
"""
