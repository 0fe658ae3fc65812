"""What a request may tell the chat template: a few variables that change the prompt alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.core.errors import InvalidRequest
from app.http.config import ApiConfig

ALLOWED = frozenset(
    {
        "date_string",
        "enable_thinking",
        "preserve_thinking",
        "reasoning_effort",
        "thinking",
        "thinking_budget",
        "tools_in_user_message",
    }
)
"""Variables of well-known templates that change the prompt and nothing else."""

_LONGEST_TEXT = 128


def template_options(given: Mapping[str, Any] | None, config: ApiConfig) -> dict[str, Any]:
    """``chat_template_kwargs``. Raises ``InvalidRequest`` for what the template does not have."""
    options = dict(given or {})
    for name, value in options.items():
        _check(name, value, config)
    return options


def _check(name: str, value: Any, config: ApiConfig) -> None:
    param = f"chat_template_kwargs.{name}"
    if name not in ALLOWED:
        raise InvalidRequest(
            f"chat_template_kwargs takes {', '.join(sorted(ALLOWED))}, not {name!r}", param=param
        )
    if name not in config.chat_format.variables:
        raise InvalidRequest(
            f"this model's chat template does not know {name!r}; leave it out", param=param
        )
    plain = value is None or isinstance(value, (bool, int, float))
    if not plain and not (isinstance(value, str) and len(value) <= _LONGEST_TEXT):
        raise InvalidRequest(
            f"{param} has to be a boolean, a number or a text of up to {_LONGEST_TEXT} characters",
            param=param,
        )
