"""Items and names that must differ: the texts that an answer has seen, beside its state.

The automaton knows nothing of texts seen before: its states and masks are shared by all answers. It
knows where an item of a list begins and ends whose items differ (marks); the names of objects are
found by a scan of the text. A place is a state with the texts seen in the containers that are open.
A token that its state allows, and that leads to a repetition, is rejected when it comes: the engine
then draws again.

seen_texts  the texts of one container, where in them an item or a name stands, the scan of names
levels      what the marks say of a state
places      a state and the texts seen: stepping, and whether an answer can be finished from there
plans       completions that repeat nothing
"""
