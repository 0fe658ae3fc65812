"""What stands around every route: ASGI middlewares, and whom a request comes from."""
