"""A program run over a vocabulary: states on demand, token masks, distances to the end.

trie              the vocabulary in flat arrays, and the compiled walks over it
automaton         states and transitions of one program, and the paths that are forced
vocabulary_index  what masks need to know of a vocabulary, whatever the constraint
walks             an automaton run over a trie
distances         how many tokens surely suffice from a state to the end
masks             which tokens may follow a state
"""
