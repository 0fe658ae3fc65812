"""What is known of a model's chat template."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from app.answer.formats.calls import ToolFormat
from app.answer.formats.families import (
    PLAIN,
    cohere,
    deepseek,
    hermes,
    kimi,
    lists,
    llama,
    marked,
    mistral,
)
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

TOOL_FORMATS: tuple[Callable[[str], ToolFormat | None], ...] = (
    harmony,
    literals,
    parameters,
    mistral,
    deepseek,
    kimi,
    cohere,
    lists,
    hermes,
    llama,
    marked,
)
"""Each finds its format in the text of a chat template; None where it is another's. The first
that knows a template has it."""


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """What is known of a model's chat template."""

    tools: ToolFormat
    reasoning: ReasoningFormat | None = None
    content: ContentFormat = BARE
    variables: frozenset[str] = frozenset()
    """The variables that the template looks at."""
    shows_tools: bool = True
    """Whether the template lists functions; else a system message does."""
    writes_calls: bool = True
    """Whether the template writes calls; else they are the text of their messages."""
    takes_results: bool = True
    """Whether the template takes results of calls that are the text of their messages."""
    takes_system: bool = True
    """Whether the template writes system messages."""
    takes_text: bool = True
    """Whether a message's content may be a text; else the template wants a list of parts."""
    image_marker: str = ""
    """What stands in a prompt for an image; "": the model takes no images."""
    takes_images: bool = False
    """Whether the template writes it for a part of a message that is an image."""
    reads_schemas: bool = True
    """Whether the model was taught to read JSON Schema in its prompt."""
    arguments_as_text: bool = False
    """Whether the template writes arguments as they are: it wants their JSON, not objects."""
    efforts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By the variables that set how much to reason: the template's word for each effort."""
    reasoning_fields: frozenset[str] = frozenset()
    """Under which names it reads the reasoning of messages."""
    reasoning_blocks: bool = False
    """Whether it reads it as a block of their content."""

    def markers(self) -> frozenset[str]:
        """Marks that an answer may hold: where one is a special token, it has to be writable."""
        reasoning = () if self.reasoning is None else self.reasoning.marks()
        return frozenset((*self.tools.marks(), *reasoning, *self.content.marks()))


def detect(template: str | None, special_tokens: Collection[str]) -> ChatFormat:
    """The form of a model's answers, by ``template`` (Jinja) and the names of special tokens.

    Never raises: what it does not know has the plain form and no reasoning.
    """
    text = template or ""
    parsed = Template(text)
    variables = parsed.variables
    shows_tools, writes_calls = "tools" in variables, parsed.writes_calls
    tools = next(filter(None, (known(text) for known in TOOL_FORMATS)), PLAIN)
    spellable = isinstance(tools, SpelledCalls) and not isinstance(tools.notation, Parameters)
    if not (shows_tools and writes_calls) and not spellable:
        tools = PLAIN  # what the template leaves out cannot be written for it
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
