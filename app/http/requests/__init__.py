"""What requests to several endpoints have in common.

body              the bytes, read up to a limit, and parsed
wire              models of what is sent, and the complaint about what is wrong with it
generation        how tokens are drawn and when answers end
constraints       every field that names a constraint; ``structural_tag`` is the largest
messages, tools   text in parts, functions and calls of them
reasoning         how much an answer reasons
template_options  variables of the chat template
fields            JSON objects that are read member by member
unserved          fields that are known and not acted on; ``ignored`` are those that are left out
"""
