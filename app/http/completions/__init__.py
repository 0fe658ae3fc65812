"""``POST /v1/completions``, OpenAI's older endpoint: text that the model goes on with.

wire        the request as it is sent
request     what is sent -> what is to be generated; the route
logprobs    log-probabilities in this endpoint's form
render      text as it comes -> completion, or chunks of a stream
answers     the shapes of both, for ``/openapi.json``
"""
