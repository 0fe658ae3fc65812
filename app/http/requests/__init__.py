"""What requests to several endpoints have in common.

body              the bytes, read up to a limit, and parsed
wire              models of what is sent, what is left out of it, and what is wrong with it
generation        how tokens are drawn and when answers end
constraints       every field that names a constraint; ``structural_tag`` is the largest
messages, tools   text and images in parts, functions and calls of them
prompt            the schema in the prompt, variables of the template, how much an answer reasons
unserved          fields that are known and not acted on
"""
