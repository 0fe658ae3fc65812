"""The marks around a model's reasoning."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

NEWLINES_BEFORE_ANSWER = 2
"""Newlines after the reasoning that belong to neither it nor the answer, at most."""


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """What stands before and after the reasoning."""

    begin: str
    end: str


_KNOWN = (ReasoningFormat("<think>", "</think>"), ReasoningFormat("[THINK]", "[/THINK]"))


def reasoning_format(template: str, special_tokens: Collection[str]) -> ReasoningFormat | None:
    """What a chat template and the names of special tokens tell; None: nothing."""
    for known in _KNOWN:
        in_tokens = known.begin in special_tokens and known.end in special_tokens
        # The mark at the end alone: some templates only take old reasoning out of the history.
        if known.end in template or in_tokens:
            return known
    return None
