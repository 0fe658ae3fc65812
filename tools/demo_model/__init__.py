"""The embedded demo model's corpus, training and evaluation.

Run by `python -m tools.demo_model`; README.md says how the shipped weights were made.
"""
