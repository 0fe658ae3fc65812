"""Replacements for the inside of a model's layers: attention of every kind, recurrent layers, and
linear layers of 8 and 4 bits. ``architecture`` decides which layers qualify."""
