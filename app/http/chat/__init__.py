"""``POST /v1/chat/completions``.

parse   JSON of the request -> generation request; the route
write   pieces of answers -> completion, or chunks of a stream; models of both
"""
