"""What a request may tell the chat template: a few variables that change the prompt alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from app.core.errors import InvalidRequest
from app.http.config import ApiConfig
from app.http.requests.ignored import Ignored
from app.http.requests.wire import refusal

_SET_HERE = frozenset(
    [
        *("add_generation_prompt", "chat_template", "continue_final_message", "documents"),
        *("messages", "tools"),
    ]
)
"""Variables that have fields of their own in requests, or none."""

_LONGEST = 4096
"""Bytes of all options as JSON."""


def template_options(
    given: Mapping[str, Any] | None, config: ApiConfig, ignored: Ignored
) -> dict[str, Any]:
    """``chat_template_kwargs``: those that the template reads; the others are left out by name.

    Raises ``InvalidRequest`` for those that the server sets, and for more than ``_LONGEST``.
    """
    options: dict[str, Any] = {}
    for name, value in (given or {}).items():
        param = f"chat_template_kwargs.{name}"
        if name in _SET_HERE:
            raise refusal(param, "it is not for chat_template_kwargs to set; leave it out")
        if name in config.chat_format.variables:
            options[name] = value
        else:
            ignored.leave_out(param, f"{param} is not read by this model's chat template")
    if len(to_json(options)) > _LONGEST:
        raise InvalidRequest(
            f"chat_template_kwargs has more than {_LONGEST} bytes as JSON, the limit; shorten it",
            param="chat_template_kwargs",
        )
    return options
