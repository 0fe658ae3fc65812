"""Marks in the texts of a format: what a tokenizer may have a special token for."""

from __future__ import annotations

import re

_MARK = re.compile(r"<[^<>\s]+>|\[/?[A-Z_ ]+\]")


def marks_in(*texts: str) -> frozenset[str]:
    return frozenset(mark for text in texts for mark in _MARK.findall(text))
