"""``/v1/responses``: to create one, and those that are kept for later ones.

kept    what a request refers to, and what is kept of its answer
parse   the request as it is sent -> what is to be generated; the routes
write   an answer as it comes -> output items, the events that report them, the response around
"""
