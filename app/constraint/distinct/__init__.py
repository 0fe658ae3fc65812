"""Items and names that must differ: the texts that an answer has seen, beside its state.

The automaton knows nothing of texts seen before: its states and masks are shared by all answers. It
shows by marks where an item of a list of unique items begins and ends; the names of objects are
found by a scan of the text. A place is a state with the texts seen in the containers that are open.
A token that its state allows, but that leads to a repetition, is rejected when it is accepted: the
engine then draws again.

seen_texts  the texts of one container, the current item or name among them, the scan of names
levels      the levels of containers and items that the marks of a state show
places      a state and the texts seen: stepping, and whether an answer can be finished from there
plans       completions that repeat nothing
"""
