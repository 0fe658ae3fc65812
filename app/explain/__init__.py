"""What a constraint is made of, for people: where a text leaves it, and what its graph looks like.

spelling  bytes and expressions as readable text
check     a text against a program: where it stops and what may stand there
measures  facts about expressions that the graph is cut by
graph     the compressed automaton, bounded: branch points, choices, leaps
keywords  what every keyword of a schema became
report    all of it as JSON
drawing   where the parts of the picture stand
svg       the picture's elements, for files and the page, and the graph for Graphviz
"""
