"""What a person at a terminal sees: bars for what takes long, colours, and where the server is."""
