"""``POST /v1/responses``, without state: no response is kept, so no request can refer to one.

wire        the request as it is sent
items       its input, as the chat template takes it
request     what is sent -> what is to be generated
settings    what a response says about its request
output      an answer as it comes -> output items, and the events that tell of them
render      the response around the output: whole, or event by event
answers     the shapes of both, for ``/openapi.json``
routes      the routes
"""
