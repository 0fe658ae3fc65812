"""Functions that an answer may call: which, how often, and the ids of the calls."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function that an answer may call."""

    name: str
    description: str | None = None
    parameters: Any = None
    """JSON Schema of the arguments; None: there are none."""
    strict: bool | None = None
    """False leaves objects open, as the specification does; else they are closed."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Which functions an answer may call."""

    tools: tuple[FunctionTool, ...]
    mode: Literal["auto", "required"] = "auto"
    """Content or calls, or calls alone."""
    parallel: bool = True
    """Whether there may be several calls."""
    whitespace: str = "spaced"
    """In arguments, as in ``JsonSchema``."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.tools)


def new_call_id(length: int | None) -> str:
    """An id that the model's chat template takes back: so many letters and digits.

    None: in OpenAI's form.
    """
    if length is None:
        return f"call_{secrets.token_hex(12)}"
    alphabet = string.ascii_letters + string.digits
    return "".join(secrets.choice(alphabet) for _ in range(length))
