"""Items and names that must differ from one another: what an answer has said, beside its state.

The automaton knows nothing of what was said: its states and masks are shared by all answers. It
knows where an item of a list begins and ends whose items differ (marks); the names of objects are
found by a scan of the text. A place is a state with what was said in the containers that are open.
A token that its state allows, and that leads to a repetition, is told when it comes: the engine
then draws again.

seen_texts  the texts of one container, where in them an item or a name stands, the scan of names
levels      what the marks say of a state
places      a state and what was said: stepping, and whether an answer can be finished from there
plans       completions that repeat nothing
"""
