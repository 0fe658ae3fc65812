"""Values that are pieces of a document: leaves of expressions that a request fills.

document   the texts of a request as JSON spells them, and where words and pieces begin and end
positions  the compiled loops over positions: where text leads, what is owed, walks over tries
binding    a program whose holes are filled, the states of a piece in one, and its derivatives
automaton  the automaton of such a program: its states inside pieces have no rows
masks      masks in and before a piece, by walks over trie and document together
"""
