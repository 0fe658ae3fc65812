"""Request models and parsing shared by several endpoints.

body              reads the bytes up to a limit, and parses them
wire              base models, ignored fields, errors
fields            sampling, and the end of answers
constraints       every field that names a constraint; ``structural_tag`` is the largest
messages, tools   text and images in parts, functions and calls of them
prompt            the schema in the prompt, variables of the template, reasoning
unsupported       known fields that are not supported
"""
