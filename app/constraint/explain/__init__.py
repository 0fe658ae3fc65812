"""What a constraint is made of, for people: where a text leaves it, and what its graph looks like.

check       a text against a program: where it stops and what may stand there
rewriting   a JSON value in the one form that answers have
graph       the compressed automaton, bounded: branch points, choices, leaps
measures    facts about expressions that the graph is cut by
keywords    what every keyword of a schema became
report      all of it as JSON
layout, svg the graph as a picture
spelling    bytes and expressions as readable text
"""
