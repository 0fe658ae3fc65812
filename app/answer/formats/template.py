"""Properties of a chat template, derived from its Jinja text or by rendering it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """transformers' ``{% generation %}`` block, which marks what the assistant wrote."""

    tags = {"generation"}  # noqa: RUF012 - so declared in jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


EXTENSIONS = (Generation, jinja2.ext.loopcontrols)
"""Extensions of Jinja that chat templates may use."""


class Template:
    """A chat template. One that cannot be parsed counts as empty; only rendering it fails."""

    def __init__(self, text: str) -> None:
        environment = jinja2.Environment(extensions=EXTENSIONS)
        try:
            self._tree = environment.parse(text)
        except jinja2.TemplateError:
            self._tree = environment.parse("")

    @property
    def variables(self) -> frozenset[str]:
        """The variables that the template reads and does not set itself."""
        return frozenset(jinja2.meta.find_undeclared_variables(self._tree))

    @property
    def writes_calls(self) -> bool:
        """Whether it writes calls, whatever else their message has.

        False if it only looks for calls in messages without content, as DeepSeek's first templates
        do, which then omit marks.
        """
        if any(
            isinstance(test, nodes.Test)
            and test.name == "none"
            and _is_member(test.node, "content")
            for test in (each.right for each in self._tree.find_all(nodes.And))
        ):
            return False
        if any(each.attr == "tool_calls" for each in self._tree.find_all(nodes.Getattr)):
            return True
        return any(each.value == "tool_calls" for each in self._tree.find_all(nodes.Const))

    @property
    def writes_arguments_as_they_are(self) -> bool:
        """Whether a call's arguments are put into text as they are given, and nowhere as JSON."""
        if any(_is_member(each.node, "arguments") for each in self._tree.find_all(nodes.Filter)):
            return False
        texts = self._tree.find_all((nodes.Output, nodes.Add, nodes.Concat))
        return any(
            _is_member(part, "arguments") for text in texts for part in text.iter_child_nodes()
        )


def _is_member(node: nodes.Node | None, name: str) -> bool:
    match node:
        case nodes.Getattr(attr=attribute):
            return bool(attribute == name)
        case nodes.Getitem(arg=nodes.Const(value=value)):
            return bool(value == name)
    return False


def calls_of(calls: Iterable[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """``tool_calls`` of a message, from the names of functions and their arguments."""
    return [
        {
            "id": f"abcdefgh{at}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for at, (name, arguments) in enumerate(calls)
    ]


def render(template: str, messages: Sequence[dict[str, Any]]) -> str | None:
    """``messages`` as ``template`` writes them; None if it refuses them.

    The environment is that of transformers' ``apply_chat_template``.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=EXTENSIONS
    )
    environment.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, **_: json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        compiled = environment.from_string(template)
        return compiled.render(messages=messages, tools=None, bos_token="", eos_token="")
    except Exception:  # whatever a template's own code raises
        return None


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)
