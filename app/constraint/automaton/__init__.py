"""A program run over a vocabulary: states on demand, token masks, distances to the end.

trie              the vocabulary in flat arrays, and the compiled walks over it
automaton         states and transitions of one program, and the paths that are forced
vocabulary_index  what masks need to know of a vocabulary, whatever the constraint
walks             an automaton run over a trie, and over languages that follow one another
bits              compiled loops over packed masks
bounds_relaxation  how expressions fall into heads and what is behind them, and which bounds matter
shared_languages  what languages allow by themselves, kept for a process
counted           heads of so many characters that a pattern holds for, too
parts             masks put together from the parts of an expression
distances         how many tokens surely suffice from a state to the end
masks             which tokens may follow a state
"""
