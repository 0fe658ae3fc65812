"""``POST /v1/chat/completions``.

wire        the request as it is sent
request     what is sent -> what is to be generated; the route
render      pieces of answers as they come -> completion, or chunks of a stream
answers     the shapes of both, for ``/openapi.json``
"""
