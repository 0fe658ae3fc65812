"""What crosses borders: requests, steps, constraint protocols, events, errors."""
