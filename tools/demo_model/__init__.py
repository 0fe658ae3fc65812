"""The embedded demo model's corpus, training and evaluation."""
