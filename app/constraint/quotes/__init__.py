"""Values that are pieces of a document: leaves of expressions that a request fills.

words      where words begin and end
document   the texts of a request as JSON spells them, and where in them pieces begin and end
positions  the compiled loops over positions: where text leads, what is owed, walks over tries
leaf       the states of a piece in one hole: where the text so far stands, bounds and pattern
binding    a program whose holes are filled, and its derivatives
automaton  the automaton of such a program: its states inside pieces have no rows
walks      walks over trie and document together
masks      masks in and before a piece, by walks over trie and document together
"""
