"""A program run over a vocabulary: states on demand, token masks, distances to the end.

trie              the vocabulary in flat arrays, and the compiled walks over it
automaton         states and transitions of one program, and the paths that are forced
vocabulary_index  an index of a vocabulary for the masks of any constraint
walks             an automaton run over a trie, and over a head with its tail
bits              compiled loops over packed masks
beginnings        tokens that begin a literal, or one of many words
bounds_relaxation  splits expressions into heads and tails, and drops bounds that do not matter
shared_languages  the tokens that heads allow by themselves, cached for a process
counted           heads with both a pattern and a bounded number of characters
parts             masks put together from the parts of an expression
distances         upper bounds of the tokens from a state to a complete answer
masks             which tokens may follow a state
choices           states with few continuations, and what these are
"""
