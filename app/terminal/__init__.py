"""Output at a terminal: progress bars, colours, and the greeting of the server."""
