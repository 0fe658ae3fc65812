"""What runs inside a model's layers in place of its own: attention of every kind, recurrent layers,
and linear layers of 8 and 4 bits. ``architecture`` decides which layers qualify."""
