"""``/v1/responses``: to create one, and those that are kept for later ones.

wire    the request as it is sent
kept    what a request refers to, and what is kept of its answer
parse   what is sent -> what is to be generated; the routes
output  an answer as it comes -> output items, and the events that tell of them
write   the response around the output, whole or event by event, and the shapes of both
"""
