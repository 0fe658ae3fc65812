"""How a model marks its reasoning and its tool calls, found in its chat template."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2 import nodes
from jinja2.parser import Parser

NEWLINES_BEFORE_ANSWER = 2
"""Newlines after the reasoning that belong to neither it nor the answer, at most."""

_MARK = re.compile(r"</?\w+>|\[/?[A-Z_]+\]")


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The spelling of tool calls::

        begin  opening NAME middle ARGUMENTS closing  separator  opening NAME ...  end

    ``NAME`` is written as it is and ``ARGUMENTS`` as JSON.
    """

    opening: str
    middle: str
    closing: str
    begin: str = ""
    separator: str = ""
    end: str = ""
    trigger: str | None = None
    """Calls may follow text, and this is what text cannot hold.

    None: an answer is either text or calls.
    """
    parallel: bool = True
    """Whether an answer may have several calls."""
    native: bool = True
    """Whether the chat template shows tools and calls; else ``prompts`` writes them out."""
    id_length: int | None = None
    """Length of call ids, letters and digits alone, where the chat template asks for one."""
    id_mark: str | None = None
    """Stands between ``NAME`` and the call's id, where the model writes one before ``middle``."""

    def leads(self, names: Iterable[str]) -> tuple[str, ...]:
        """What tells that calls of these functions begin: one of these strings.

        Where text and calls share no mark that only calls have, the name and what follows it are
        part of the lead: ``{"name": "Ada"}`` is an answer like any other.
        """
        if self.trigger is not None:
            return (self.trigger,)
        head = self.begin + self.opening
        return tuple(head + name + self.middle for name in names)


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """What stands before and after the reasoning."""

    begin: str
    end: str


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
        tools = self.tools
        texts = [tools.begin, tools.opening, tools.id_mark or "", tools.middle]
        texts += [tools.closing, tools.separator, tools.end]
        if self.reasoning is not None:
            texts += [self.reasoning.begin, self.reasoning.end]
        return frozenset(mark for text in texts for mark in _MARK.findall(text))


PLAIN = ToolFormat(
    begin='{"tool_calls": [',
    opening='{"name": "',
    middle='", "arguments": ',
    closing="}",
    separator=", ",
    end="]}",
    native=False,
)
"""For templates that know no tools, or whose calls hold arguments that are not JSON."""

HERMES = ToolFormat(
    opening='<tool_call>\n{"name": "',
    middle='", "arguments": ',
    closing="}\n</tool_call>",
    separator="\n",
    trigger="<tool_call>",
)
"""Hermes 2 Pro, Qwen 2.5, Qwen 3 and others."""

LLAMA = ToolFormat(opening='{"name": "', middle='", "parameters": ', closing="}", parallel=False)
"""Llama 3.1 and later; the template takes one call in a message."""

MISTRAL = ToolFormat(
    opening="[TOOL_CALLS]", middle="[ARGS]", closing="", trigger="[TOOL_CALLS]", id_length=9
)
"""Mistral from tokenizer version 11 on."""

_REASONING = (ReasoningFormat("<think>", "</think>"), ReasoningFormat("[THINK]", "[/THINK]"))

_HERMES_ARGUMENTS = re.compile(r'\\?"arguments\\?"')
_NOT_HERMES = ("<function=", "<arg_key>")
"""Qwen3-Coder and GLM write arguments as XML between the same marks."""

_LLAMA_MARKS = ("<|start_header_id|>", "<|header_start|>")


def detect(template: str | None, special_tokens: Collection[str]) -> ChatFormat:
    """What ``template`` (Jinja) and the names of special tokens tell of a model's answers.

    Never raises: what it does not know has the plain form and no reasoning.
    """
    text = template or ""
    return ChatFormat(
        tools=_tool_format(text),
        reasoning=_reasoning_format(text, special_tokens),
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


def _tool_format(template: str) -> ToolFormat:
    if "[TOOL_CALLS]" in template:
        return _mistral(template)
    if (
        "<tool_call>" in template
        and _HERMES_ARGUMENTS.search(template)
        and not any(mark in template for mark in _NOT_HERMES)
    ):
        return HERMES
    if (
        any(mark in template for mark in _LLAMA_MARKS)
        and '{"name": "' in template
        and '"parameters": ' in template
    ):
        return LLAMA
    return PLAIN


def _mistral(template: str) -> ToolFormat:
    """Versions of Mistral's form: a list, names before arguments, and an id between them."""
    if "[ARGS]" not in template:
        space = " " if "[TOOL_CALLS] " in template else ""
        return ToolFormat(
            begin=f"[TOOL_CALLS]{space}[",
            opening='{"name": "',
            middle='", "arguments": ',
            closing="}",
            separator=", ",
            end="]",
            trigger="[TOOL_CALLS]",
            id_length=9,
        )
    id_mark = "[CALL_ID]" if "[CALL_ID]" in template else None
    return replace(MISTRAL, id_mark=id_mark)


def _reasoning_format(template: str, special_tokens: Collection[str]) -> ReasoningFormat | None:
    for known in _REASONING:
        in_tokens = known.begin in special_tokens and known.end in special_tokens
        # The mark at the end alone: some templates only take old reasoning out of the history.
        if known.end in template or in_tokens:
            return known
    return None
