"""``POST /v1/chat/completions``.

wire        the request as it is sent
messages    its messages, as the chat template takes them
tools       its tools, and which calls an answer may have
translate   request -> ``ChatCall``
answers     text as it comes -> completion, or chunks of a stream
routes      the route
"""
