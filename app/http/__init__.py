"""The APIs, over HTTP.

application  the FastAPI application, put together
connection   bounds of a client's connection, below HTTP
edge         around every route: id, log, CORS, keys, admission; ``keys`` has keys and tenants
endpoint     a request from its first byte to its last: read, parsed, answered whole or streamed
requests     what the requests of several APIs have in common
chat, completions, messages, responses   an API each: parse, write
renderers    what their writers share
reports      what every API writes beside an answer's text: values, log-probabilities, warnings
schemas, tokens, files, batches, model_routes, page   the other routes
errors       the one table of status codes
openapi      ``/openapi.json``, from the routes' descriptions

A field of all requests goes into ``requests.generation``, one of a single API into the models in
its ``parse``. A new API has a ``Renderer`` of its own.
"""
