"""What goes wrong in operation, done to a real server on purpose, and what was then measured."""
