"""``POST /v1/chat/completions``.

wire        the request as it is sent
messages    its messages, as the chat template takes them
request     what is sent -> what is to be generated
render      pieces of answers as they come -> completion, or chunks of a stream
answers     the shapes of both, for ``/openapi.json``
routes      the route
"""
