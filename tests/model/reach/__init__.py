"""Which kinds of language models run, tried one by one: ``python -m tests.model.reach``.

``kinds`` lists them, ``small`` makes a configuration of each that is quick, ``trial`` tries
one, and ``page`` writes ``docs/models.md``.
"""
