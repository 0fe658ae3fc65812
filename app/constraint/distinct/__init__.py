"""Items and names that must differ: an answer's state with the texts seen so far.

States and masks are shared by all answers, so they do not depend on earlier texts. Marks in states
show where an item of a list of unique items begins and ends; names of objects are found by a scan
of the text. A place is a state with the texts seen in the open containers. A token that the mask
allows but that leads to a repetition is rejected by ``accept``; the engine then draws again.

seen_texts  the texts of one container, the current item or name among them, the scan of names
levels      the containers and items that are open, from the marks of a state
places      a state and the texts seen: stepping, and whether an answer can be finished from there
plans       completions that repeat nothing
"""
