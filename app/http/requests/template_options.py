"""What a request may tell the chat template: how much to reason, and a few variables more."""

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
_SWITCHES = ("enable_thinking", "thinking")


def template_options(
    effort: str | None,
    given: Mapping[str, Any] | None,
    config: ApiConfig,
    effort_param: str = "reasoning_effort",
) -> dict[str, Any]:
    """Variables for the template. Raises ``InvalidRequest`` for one that it does not have.

    ``effort_param``: the field that ``effort`` came from.
    """
    options = dict(given or {})
    for name, value in options.items():
        _check(name, value, config)
    if effort is not None:
        options |= _effort(effort, config, effort_param)
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


def _effort(effort: str, config: ApiConfig, param: str) -> dict[str, Any]:
    """``reasoning_effort`` in the template's own words. For most models "none" changes nothing."""
    known = config.chat_format.variables
    switches = {name: effort != "none" for name in _SWITCHES if name in known}
    if "reasoning_effort" in known:
        return {**switches, "reasoning_effort": effort}
    if not switches and effort != "none":
        raise InvalidRequest(
            f"this model's chat template has no setting for reasoning; leave {param} out",
            param=param,
        )
    return switches
