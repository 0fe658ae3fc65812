"""What is known of a model's chat template."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2 import nodes
from jinja2.parser import Parser

from app.answer.formats.calls import ToolFormat
from app.answer.formats.harmony import harmony
from app.answer.formats.hermes import hermes
from app.answer.formats.llama import llama
from app.answer.formats.mistral import mistral
from app.answer.formats.plain import PLAIN
from app.answer.formats.reasoning import (
    BARE,
    ContentFormat,
    ReasoningFormat,
    content_format,
    reasoning_format,
)
from app.answer.formats.words import effort_words, reasoning_fields

TOOL_FORMATS: tuple[Callable[[str], ToolFormat | None], ...] = (
    harmony,
    mistral,
    hermes,
    llama,
)
"""Each tells its format from the text of a chat template; None where it is another's. The first
that knows a template has it."""


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """What is known of a model's chat template."""

    tools: ToolFormat
    reasoning: ReasoningFormat | None = None
    content: ContentFormat = BARE
    variables: frozenset[str] = frozenset()
    """The variables that the template looks at."""
    has_template: bool = True
    efforts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By the variables that tell how much to reason: the template's word for each effort."""
    reasoning_fields: frozenset[str] = frozenset()
    """Under which names it reads the reasoning of messages."""
    reasoning_blocks: bool = False
    """Whether it reads it as a block of their content."""

    def markers(self) -> frozenset[str]:
        """Marks that an answer may hold: where one is a special token, it has to be writable."""
        reasoning = () if self.reasoning is None else self.reasoning.marks()
        return frozenset((*self.tools.marks(), *reasoning, *self.content.marks()))


def detect(template: str | None, special_tokens: Collection[str]) -> ChatFormat:
    """What ``template`` (Jinja) and the names of special tokens tell of a model's answers.

    Never raises: what it does not know has the plain form and no reasoning.
    """
    text = template or ""
    variables = template_variables(text)
    return ChatFormat(
        tools=next(filter(None, (known(text) for known in TOOL_FORMATS)), PLAIN),
        reasoning=reasoning_format(text, special_tokens),
        content=content_format(text),
        variables=variables,
        has_template=bool(template),
        efforts=effort_words(text, variables),
        reasoning_fields=reasoning_fields(text),
        reasoning_blocks="block['thinking']" in text,
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
