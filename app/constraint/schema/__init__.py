"""JSON Schema (draft 2020-12) as byte expressions.

``document`` holds the schema and its pointers, ``keywords`` knows the vocabulary and the shapes,
``branches`` distributes references and ``anyOf`` until only assertions are left, ``builder`` turns
these into expressions with ``objects``, ``arrays`` and ``strings``, and ``evaluation`` applies
assertions to the values of ``enum`` and ``const``.
"""
