"""``POST /v1/completions``, OpenAI's older endpoint: text that the model goes on with.

wire        the request as it is sent
prompts     its prompts, as text or as tokens
translate   request -> ``CompletionCall``
logprobs    log-probabilities in this endpoint's form
answers     text as it comes -> completion, or chunks of a stream
routes      the route
"""
