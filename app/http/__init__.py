"""The HTTP APIs.

application  builds the FastAPI application
connection   limits on a client's connection, below HTTP
edge         middleware of all routes: id, log, CORS, keys, admission; ``keys``: keys and tenants
endpoint     handling of a request: read, parse, answer; ``Api``: the objects that routes use
requests     request models and parsing shared by several APIs
chat, completions, messages, responses   one API each: parse, write
renderers    base classes of their writers
reports      reports of all APIs beside an answer's text: values, log-probabilities, warnings
schemas, tokens, files, batches, model_routes, page   the other routes
errors       the table from errors to status codes
openapi      ``/openapi.json``, from the routes' descriptions

Request fields of all APIs go into ``requests.fields``, those of one API into the models in its
``parse``. A new API needs a ``Renderer`` of its own.
"""
