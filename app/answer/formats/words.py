"""What a chat template calls the reasoning of messages, and how much of it there is to be."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "thought", "tool_plan")
"""Names under which templates read the reasoning of a message."""

_EFFORT_VARIABLES = (
    "reasoning_effort",
    "reasoning_strength",
    "thinking_effort",
    "thinking_mode",
    "thinking_option",
)

_EFFORTS = {"none": 0, "minimal": 1, "low": 2, "medium": 3, "high": 4, "xhigh": 5, "max": 6}
"""What requests say, by how much it is."""

_AMOUNTS = {**_EFFORTS, "no_think": 0, "off": 0, "disabled": 0, "on": 3, "enabled": 3}
"""The same and what templates say."""

_USUAL = ("low", "medium", "high")
"""For templates that write the word into the prompt."""


def reasoning_fields(template: str) -> frozenset[str]:
    """Of ``REASONING_FIELDS`` those that ``template`` looks at in messages."""
    return frozenset(
        name for name in REASONING_FIELDS if re.search(rf"""[.'"]{name}\b""", template)
    )


def effort_words(template: str, variables: Collection[str]) -> Mapping[str, Mapping[str, str]]:
    """By the variables of ``template`` that tell how much to reason: its word for each effort."""
    known = [name for name in _EFFORT_VARIABLES if name in variables]
    found = {}
    for name in known:
        words = _words(template, name)
        found[name] = {effort: _word(effort, words) for effort in _EFFORTS}
    return found


def _words(template: str, variable: str) -> list[str]:
    """The words that ``variable`` may be."""
    compared = re.findall(
        rf"\b{variable}\b(?:\s*\|\s*\w+)?\s*(not in|in|==|!=)\s*(\[[^\]]*\]|'[^']*'|\"[^\"]*\")",
        template,
    )
    found = {word: None for _, text in compared for word in re.findall(r"['\"](\w+)['\"]", text)}
    known = [word for word in found if word in _AMOUNTS]
    has_all = any(how == "not in" for how, _ in compared) or {"on", "enabled"} & found.keys()
    return known if has_all and known else [*known, *_USUAL]


def _word(effort: str, words: Collection[str]) -> str:
    """The nearest: more rather than less, but for the least."""
    asked = _EFFORTS[effort]
    if asked <= _EFFORTS["minimal"]:
        return min(words, key=lambda word: _AMOUNTS[word])
    reasoning = [word for word in words if _AMOUNTS[word] > _EFFORTS["minimal"]] or words
    return min(reasoning, key=lambda word: (abs(_AMOUNTS[word] - asked), -_AMOUNTS[word]))
