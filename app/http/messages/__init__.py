"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's Messages API.

parse   JSON of the request -> generation request; the routes
write   pieces of answers -> message, or the events of a stream; models of both
"""
