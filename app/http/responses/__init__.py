"""``POST /v1/responses``, and the responses that are kept for later ones.

wire        the request as it is sent
kept        what a request refers to, and what is kept of its answer
request     what is sent -> what is to be generated
output      an answer as it comes -> output items, and the events that tell of them
render      the response around the output: whole, or event by event
answers     the shapes of both, for ``/openapi.json``
routes      the routes
"""
