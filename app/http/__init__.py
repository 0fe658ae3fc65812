"""HTTP: routes, wire models, server-sent events, and the one table of status codes."""
