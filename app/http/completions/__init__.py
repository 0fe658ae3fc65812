"""``POST /v1/completions``, OpenAI's older endpoint: text that the model continues.

parse   JSON of the request -> generation request; the route
write   text -> completion, or chunks of a stream; log-probabilities; models of all
"""
