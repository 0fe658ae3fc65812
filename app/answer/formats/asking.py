"""What a chat template writes of a conversation, to learn its marks from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app.answer.formats.template import EXTENSIONS


def render(template: str, messages: Sequence[dict[str, Any]]) -> str | None:
    """``messages`` as ``template`` writes them; None where it takes no such conversation.

    The environment is that of transformers' ``apply_chat_template``.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=EXTENSIONS
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        compiled = environment.from_string(template)
        return compiled.render(messages=messages, tools=None, bos_token="", eos_token="")
    except Exception:  # whatever a template's own code raises
        return None


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)
