"""A program run over a vocabulary: states on demand, token masks, distances to the end.

automaton         states and transitions of one program, and the paths that are forced
trie              the vocabulary in flat arrays, and the compiled walks over it
vocabulary_index  what masks need to know of a vocabulary, whatever the constraint
masks             which tokens may follow a state
"""
