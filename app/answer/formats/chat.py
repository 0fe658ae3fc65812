"""Properties of a model's chat template."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from app.answer.formats.calls import ToolFormat
from app.answer.formats.families import PLAIN, hermes, lists, marked, marked_at_last
from app.answer.formats.harmony import harmony
from app.answer.formats.literals import literals, takes_results_of_text, writes
from app.answer.formats.parameters import parameters
from app.answer.formats.reasoning import (
    BARE,
    ContentFormat,
    ReasoningFormat,
    content_format,
    effort_words,
    reasoning_fields,
    reasoning_format,
)
from app.answer.formats.spelled import SpelledCalls
from app.answer.formats.template import Template
from app.core.arguments import Parameters
from app.core.literals import Literals

DETECTORS: tuple[Callable[[str], ToolFormat | None], ...] = (
    harmony,
    literals,
    parameters,
    marked,
    lists,
    hermes,
    marked_at_last,
)
"""Detectors of tool formats in the text of a chat template; each returns None for templates of
another format. The first match wins."""


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """Properties of a model's chat template."""

    tools: ToolFormat
    reasoning: ReasoningFormat | None = None
    content: ContentFormat = BARE
    variables: frozenset[str] = frozenset()
    """Variables that the template reads."""
    shows_tools: bool = True
    """Whether the template lists functions; else a system message does."""
    writes_calls: bool = True
    """Whether the template writes calls; otherwise they are part of the messages' text."""
    takes_results: bool = True
    """Whether the template accepts tool results although calls are part of the messages' text."""
    takes_system: bool = True
    """Whether the template writes system messages."""
    takes_text: bool = True
    """Whether a message's content may be a text; else the template wants a list of parts."""
    image_marker: str = ""
    """Text that stands for an image in a prompt; "": the model takes no images."""
    takes_images: bool = False
    """Whether the template writes ``image_marker`` for image parts of a message."""
    reads_schemas: bool = True
    """Whether the model is trained to read JSON Schema in its prompt."""
    arguments_as_text: bool = False
    """Whether arguments must be passed to the template as JSON text, not as objects."""
    efforts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each variable that sets the amount of reasoning, the template's word by effort."""
    reasoning_fields: frozenset[str] = frozenset()
    """Names under which the template reads the reasoning of messages."""
    reasoning_blocks: bool = False
    """Whether the template reads reasoning as a block of the content."""

    def markers(self) -> frozenset[str]:
        """Marks that an answer may hold: where one is a special token, it has to be writable."""
        reasoning = () if self.reasoning is None else self.reasoning.marks()
        return frozenset((*self.tools.marks(), *reasoning, *self.content.marks()))


def detect(template: str | None, special_tokens: Collection[str]) -> ChatFormat:
    """The form of a model's answers, by ``template`` (Jinja) and the names of special tokens.

    Never raises: an unknown template has the plain form and no reasoning.
    """
    text = template or ""
    parsed = Template(text)
    variables = parsed.variables
    shows_tools, writes_calls = "tools" in variables, parsed.writes_calls
    tools = next(filter(None, (known(text) for known in DETECTORS)), PLAIN)
    spellable = isinstance(tools, SpelledCalls) and not isinstance(tools.notation, Parameters)
    if not (shows_tools and writes_calls) and not spellable:
        tools = PLAIN  # the server cannot write calls of such a format itself
    takes_results = True
    if isinstance(tools, SpelledCalls) and isinstance(tools.notation, Literals):
        writes_calls = writes_calls and writes(text, tools)
        takes_results = writes_calls or takes_results_of_text(text)
    return ChatFormat(
        tools=tools,
        shows_tools=shows_tools,
        writes_calls=writes_calls,
        takes_results=takes_results,
        reasoning=reasoning_format(text, special_tokens),
        variables=variables,
        content=content_format(text),
        arguments_as_text=parsed.writes_arguments_as_they_are,
        efforts=effort_words(text, variables),
        reasoning_fields=reasoning_fields(text),
        reasoning_blocks="block['thinking']" in text,
    )
