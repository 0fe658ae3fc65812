"""Values that are pieces of a document: leaves of expressions that a request fills.

suffixes   the suffix automaton of a document, built by compiled loops
document   the texts of a request, and the automaton of their pieces
steps      the compiled steps of a piece: one byte of JSON further, what is owed, walks over tries
leaf       the states of a piece in one hole: bounds and pattern beside the document
binding    a program whose holes are filled, and its derivatives
masks      masks in and before a piece, by walks over trie and document together
"""
