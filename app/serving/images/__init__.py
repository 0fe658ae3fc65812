"""Images of requests: fetched where that is allowed, and read in processes of their own.

Read in this order: ``fetching``; ``preparing`` (in the workers); ``encoding``, ``intake``.
"""
