"""What is known of a model's chat template."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2 import nodes
from jinja2.parser import Parser

from app.answer.formats.calls import ToolFormat
from app.answer.formats.hermes import hermes
from app.answer.formats.llama import llama
from app.answer.formats.mistral import mistral
from app.answer.formats.plain import PLAIN
from app.answer.formats.reasoning import ReasoningFormat, reasoning_format

TOOL_FORMATS: tuple[Callable[[str], ToolFormat | None], ...] = (mistral, hermes, llama)
"""Each tells its format from the text of a chat template; None where it is another's. The first
that knows a template has it."""


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """What is known of a model's chat template."""

    tools: ToolFormat
    reasoning: ReasoningFormat | None = None
    variables: frozenset[str] = frozenset()
    """The variables that the template looks at."""
    has_template: bool = True

    def markers(self) -> frozenset[str]:
        """Marks that an answer may hold: where one is a special token, it has to be writable."""
        reasoning = self.reasoning
        around = () if reasoning is None else (reasoning.begin, reasoning.end)
        return frozenset((*self.tools.marks(), *around))


def detect(template: str | None, special_tokens: Collection[str]) -> ChatFormat:
    """What ``template`` (Jinja) and the names of special tokens tell of a model's answers.

    Never raises: what it does not know has the plain form and no reasoning.
    """
    text = template or ""
    return ChatFormat(
        tools=next(filter(None, (known(text) for known in TOOL_FORMATS)), PLAIN),
        reasoning=reasoning_format(text, special_tokens),
        variables=template_variables(text),
        has_template=bool(template),
    )


def template_variables(template: str) -> frozenset[str]:
    """The variables that a Jinja template looks at before it sets them itself.

    None for a template that cannot be parsed: rendering it is what fails.
    """
    environment = jinja2.Environment(extensions=[_Generation, jinja2.ext.loopcontrols])
    try:
        return frozenset(jinja2.meta.find_undeclared_variables(environment.parse(template)))
    except jinja2.TemplateError:
        return frozenset()


class _Generation(jinja2.ext.Extension):
    """transformers' ``{% generation %}`` block, which marks what the assistant wrote."""

    tags = {"generation"}  # noqa: RUF012 - so declared in jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
