"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's Messages API.

parse   the request as it is sent -> what is to be generated; the routes
write   pieces of answers as they come -> message, or the events of a stream, and their shapes
"""
