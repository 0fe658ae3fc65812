"""Programs for whoever works on the project: not shipped, and never run in production."""
