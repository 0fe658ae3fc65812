"""From branches to expressions.

builder      goals, branches and their types; recursion becomes rules
array_text   arrays: first items, counts, wanted items, different items
object_text  objects: members in order, counts, free members
free_names   the names that members without a name of their own may have
"""
