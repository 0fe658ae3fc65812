"""HTTP, and what the APIs on it say.

application  the FastAPI application, put together
connection   bounds of a client's connection, below HTTP
edge         around every route: id, log, CORS, keys, admission; ``keys`` has keys and tenants
endpoint     a request from its first byte to its last; ``answering`` where it generates
requests     what the requests of several APIs have in common
chat, completions, responses   an API each: request, renderer and route
schemas, tokens, meta          the other routes
errors       the one table of status codes
openapi      ``/openapi.json``, from what the routes tell of themselves

A field of a request goes into its API's ``wire``, and ``request`` reads it. A new API has a
``Renderer`` of its own.
"""
