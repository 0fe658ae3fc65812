"""JSON Schema (drafts 4 to 2020-12) as byte expressions.

document   the schema as nodes named by JSON Pointer, its dialect, its references
keywords   the vocabulary: the keywords for each type, and the form of their values; equality of
           JSON values
shapes, numeric, strings
           combined restrictions of several subschemas on a value of one type
logic/     from subschemas that hold together to alternatives without applicators
lowering/  from these to expressions
edits      a schema without a keyword at one place, for relaxing
contradiction
           the smallest part of a schema that nothing satisfies, and the keywords that clash there
"""
