"""JSON Schema (drafts 4 to 2020-12) as byte expressions.

document   the schema as nodes named by JSON Pointer, its dialect, its references
keywords   the vocabulary: what asserts what about which type, and in which shape; when two JSON
           values are equal
shapes, numeric, strings
           what several subschemas together ask of a value of one type
logic/     from subschemas that hold together to alternatives without applicators
lowering/  from these to expressions
"""
