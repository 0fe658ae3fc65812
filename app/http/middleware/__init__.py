"""ASGI middlewares around every route, and who a request comes from."""
