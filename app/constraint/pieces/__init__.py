"""Values that are pieces of a document: leaves of expressions that a request fills.

suffixes   the suffix automaton of a document, built by compiled loops
words      where words begin and end
document   the texts of a request, and the automaton of their pieces
steps      the compiled steps of a piece: a byte of JSON further, what is owed to its end
ways       the compiled ways along it: where text leads, how it goes on, walks over tries
leaf       the states of a piece in one hole: bounds and pattern beside the document
binding    a program whose holes are filled, and its derivatives
automaton  the automaton of such a program: its states inside pieces have no rows
walks      walks over trie and document together
masks      masks in and before a piece, by walks over trie and document together
"""
