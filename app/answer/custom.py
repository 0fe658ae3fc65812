"""OpenAI's custom tools, whose calls have one text in place of arguments.

A model knows functions alone, so it is shown one with the parameter ``input``, and calls it in the
format it was taught. What it writes is ``{"input": "..."}``; clients are given the text inside.
"""

from __future__ import annotations

import json
import re
from typing import Any

from app.answer.tools import FunctionTool
from app.core.specs import Grammar, Regex

_INPUT = "input"

_BEGINNING = re.compile(r'\s*\{\s*"[^"]*+"\s*:\s*"')
_CHARACTERS = re.compile(
    r'(?:[^"\\]|\\[^u]|\\u[dD][89abAB]..\\u.{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*+', re.DOTALL
)
"""Those that are whole; a pair of surrogate escapes is one character."""


def custom_tool(
    name: str, description: str | None, format: Grammar | Regex | None = None
) -> FunctionTool:
    """A tool whose input is any text, or one of ``format``."""
    told: dict[str, Any] = {"type": "string"}
    match format:
        case Grammar(text, syntax):
            told["description"] = f"A text of this grammar (notation: {syntax}):\n{text}"
            asked = {**told, "x-grammar": {"syntax": syntax, "definition": text}}
        case Regex(pattern):
            told["description"] = f"A text that this regular expression matches whole:\n{pattern}"
            asked = {**told, "x-grammar": {"syntax": "regex", "definition": pattern}}
        case None:
            asked = told
    return FunctionTool(
        name, description, _parameters(asked), strict=True, custom=True, shown=_parameters(told)
    )


def custom_arguments(input: str) -> dict[str, str]:
    """The arguments of an earlier call with this input, as the model wrote them."""
    return {_INPUT: input}


def _parameters(input: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {_INPUT: input},
        "required": [_INPUT],
        "additionalProperties": False,
    }


class InputReader:
    """The input out of the JSON of a call's arguments, in chunks of any size."""

    def __init__(self) -> None:
        self._begun = False
        self._held = ""

    def push(self, text: str) -> str:
        """What ``text`` adds to the input; half an escape is held back."""
        self._held += text
        if not self._begun:
            beginning = _BEGINNING.match(self._held)
            if beginning is None:
                return ""
            self._begun = True
            self._held = self._held[beginning.end() :]
        whole = _CHARACTERS.match(self._held)
        assert whole is not None
        self._held = self._held[whole.end() :]
        written: str = json.loads(f'"{whole[0]}"', strict=False)
        return written
