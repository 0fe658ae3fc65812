"""Items that must differ from one another: what an answer has said, carried beside its state.

The automaton knows where an item of such an array begins and ends (marks), and nothing of what was
said; its states and masks are shared by all answers. A place is a state of it with the texts that
were said in the arrays that are open.

said     the texts of one array, and where in them an item stands
levels   what the marks say of a state
places   a state and what was said: stepping, and whether an answer can be finished from there
plans    completions that repeat nothing
masks    the masks of the automaton without the tokens that lead to a repetition
state    where one answer stands
"""
