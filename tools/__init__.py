"""Programs for developers of the project: not shipped, and never run in production."""
