"""The asynchronous edge: a request's lifetime from arrival to its last chunk of text."""
