"""Trials of every kind of language model: ``python -m tests.model.reach``.

``kinds`` lists the kinds, ``small`` makes a small configuration of one, ``trial`` tries one, and
``page`` writes ``docs/models.md``.
"""
