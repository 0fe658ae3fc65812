"""``POST /v1/chat/completions``.

parse   the request as it is sent -> what is to be generated; the route
write   pieces of answers as they come -> completion, or chunks of a stream, and their shapes
"""
