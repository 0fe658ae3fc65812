"""``/v1/responses``: creating responses, and storing them for later requests.

kept    stored items that a request refers to, and storing its answer
parse   JSON of the request -> generation request; the routes
write   pieces of answers -> output items, their events, and the response object
"""
