"""Values that are pieces of a document, which fill the holes of a program for one request.

document   the texts of a request in JSON's spelling, with the borders of words and pieces
positions  the compiled loops over positions: steps, distances to an end, walks over tries
binding    a program whose holes are filled, the states of its pieces, and their derivatives
automaton  the automaton of such a program: its states inside pieces have no rows
masks      masks in and before a piece, by walks over trie and document together
"""
