"""The server put together: settings, composition, signals, metrics that are read, preloads."""
