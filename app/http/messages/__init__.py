"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's Messages API.

wire        the request as it is sent
blocks      its messages, as the chat template takes them
request     what is sent -> what is to be generated; the routes
render      pieces of answers as they come -> message, or the events of a stream
answers     the shapes of both, for ``/openapi.json``
"""
