"""``POST /v1/completions``, OpenAI's older endpoint: text that the model goes on with.

parse   the request as it is sent -> what is to be generated; the route
write   text as it comes -> completion, or chunks of a stream; log-probabilities; their shapes
"""
