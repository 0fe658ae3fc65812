"""What makes the things that are shipped, and never runs in production."""
