"""Drafts: what an answer is likely to go on with, and what earlier answers teach of it."""
