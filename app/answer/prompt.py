"""A conversation as the model's chat template takes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from app.answer.formats.calls import CallIds
from app.answer.formats.chat import ChatFormat
from app.answer.formats.families import PLAIN
from app.answer.formats.reasoning import (
    DEFAULT_REASONING,
    INSTRUCTION,
    ReasoningFormat,
    ReasoningUse,
)
from app.answer.formats.spelled import SpelledCalls
from app.answer.images import ImageSource, as_templates_take_it, results_first
from app.answer.schema_prompt import SchemaPrompt, kept_schema
from app.answer.tools import FunctionTool
from app.core.errors import InvalidRequest
from app.core.text import RenderedPrompt, Tokenizer
from app.core.verbatim import Passage

Opening = Literal["closed", "open", "possible", "needed"]
"""Start of the answer relative to the reasoning: after it, inside, or before (optional or not)."""

_COST_OF_VALUE = 8
"""Extra characters that a value counts for: its punctuation, and its cost."""

_INSTRUCTIONS = """\
You can call functions. These are the functions, one in a line, with their parameters as JSON Schema:
{functions}

To call functions, answer with one JSON object of this form and with nothing else:
{form}
Otherwise, answer with text."""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Prefill:
    """The prefill of an answer, which the model continues."""

    content: str
    """"": the prefill ends inside the reasoning."""
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages for the chat template, whose last one the model answers."""

    messages: Sequence[Mapping[str, Any]]
    """In OpenAI's form: role, content, name, tool_calls, tool_call_id; content as text with marks
    for images, and the arguments of calls as objects, or as text where they are none."""
    tools: Sequence[FunctionTool] = ()
    """Functions shown in the prompt; the constraint alone decides which can be called."""
    template_options: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the chat template (``enable_thinking``, ...)."""
    passages: Sequence[Passage] = ()
    """Texts of the messages, by the API's names, which verbatim values may quote."""
    reasoning: ReasoningUse = DEFAULT_REASONING
    schema_prompt: SchemaPrompt | None = None
    """The answer's schema for the prompt; None: it is not shown."""
    images: Sequence[ImageSource] = ()
    """Images for the marks in the messages, in order."""
    prefill: Prefill | None = None
    """Prefill of the answer, after all messages."""
    opens: bool = True
    """Whether the prompt opens an assistant message."""


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text that the model goes on with, as it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Tokens that the model continues, all of them ids of the vocabulary."""

    tokens: Sequence[int]


Prompt = Conversation | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class TemplateInput:
    """Input of the chat template."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None
    """In OpenAI's form; None where there are none or the messages list them."""
    options: Mapping[str, Any]


def render(
    prompt: Prompt, tokenizer: Tokenizer, format: ChatFormat, add_special_tokens: bool
) -> RenderedPrompt:
    """``prompt`` in tokens. Raises ``InvalidRequest`` where the chat template refuses."""
    match prompt:
        case TokenPrompt(tokens):
            return RenderedPrompt(tokens)
        case TextPrompt(text):
            tokens = tokenizer.encode_prompt(text, add_special_tokens=add_special_tokens)
            return RenderedPrompt(tokens)
    given = template_input(prompt, format)
    for _ in range(2):
        try:
            return tokenizer.render_chat(
                given.messages, given.tools, given.options, opens=prompt.opens
            )
        except InvalidRequest:
            calls = [call for each in given.messages for call in each.get("tool_calls", ())]
            texts = [call for call in calls if isinstance(call["function"]["arguments"], str)]
            if format.arguments_as_text or not texts:
                raise
            for call in texts:  # as objects, for a template that goes through their members
                function = call["function"]
                call["function"] = {**function, "arguments": {"arguments": function["arguments"]}}
    raise AssertionError("nothing left to wrap")


def passages(prompt: Prompt) -> Sequence[Passage]:
    """The texts that verbatim values may quote.

    Raises ``InvalidRequest`` for a prompt of tokens, which may not be the tokenization of any text.
    """
    match prompt:
        case TokenPrompt():
            raise InvalidRequest(
                "x-verbatim needs the prompt as text, not as tokens", role="prompt"
            )
        case TextPrompt(text):
            return (Passage("prompt", text),)
    return prompt.passages


def template_input(conversation: Conversation, format: ChatFormat) -> TemplateInput:
    """The messages and tools in the form that the chat template knows.

    Ids are adapted. If it does not list functions, a system message does; if it does not write
    calls, they become assistant text, and if it does not take results, these become user text.
    Images of results are moved to user messages.
    """
    messages = results_first([_cleaned(each, format) for each in conversation.messages])
    tools, schema_prompt = conversation.tools, conversation.schema_prompt
    if conversation.reasoning.wanted and format.reasoning is None:
        messages = _instructed(messages, INSTRUCTION, format)
    _name_results(messages)
    if schema_prompt is not None and schema_prompt.schema:
        instructions = schema_prompt.instructions(may_call=bool(tools))
        messages = _instructed(messages, instructions, format, first=True)
    if not format.tools.native:
        written = _written_out(messages, PLAIN)
        if tools:
            instructions = _instructions(tools, PLAIN, reads_schemas=format.reads_schemas)
            written = _instructed(written, instructions, format)
        return TemplateInput(_in_form(written, format), None, conversation.template_options)
    _fit_ids(messages, format.tools.ids)
    if isinstance(format.tools, SpelledCalls):  # with other formats the template does it all
        if not format.takes_results:
            messages = _written_out(messages, format.tools)
        elif not format.writes_calls:
            messages = [_with_calls(each, format.tools) for each in messages]
        if tools and not format.shows_tools:
            instructions = _instructions(tools, format.tools, reads_schemas=format.reads_schemas)
            messages = _instructed(messages, instructions, format)
            tools = ()
    for message in messages if format.arguments_as_text else ():
        for call in message.get("tool_calls", ()):
            arguments = call["function"]["arguments"]
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            call["function"] = {**call["function"], "arguments": arguments}
    shown = [_shown(tool) for tool in tools] or None
    return TemplateInput(_in_form(messages, format), shown, conversation.template_options)


def opening(prompt_tail: str, reasoning: ReasoningFormat) -> Opening:
    """Where the answer to a prompt that ends in ``prompt_tail`` begins."""
    text, begin, end = prompt_tail.rstrip(), reasoning.begin.strip(), reasoning.end
    if text.endswith(begin):
        return "open"
    # ``then`` alone may also separate any two messages.
    over = begin + end + reasoning.then if reasoning.then else end
    return "closed" if text.endswith(over) else "possible"


def text_length(prompt: Prompt, enough: int) -> int:
    """Rough number of characters of text, messages and tools, to estimate the cost of rendering.

    Stops soon after ``enough``, which bounds its own cost.
    """
    if isinstance(prompt, TokenPrompt):
        return 0
    if isinstance(prompt, TextPrompt):
        return len(prompt.text)
    size, waiting = 0, [*prompt.tools, *prompt.messages]
    if prompt.schema_prompt is not None:
        waiting.append(prompt.schema_prompt.schema)
    while waiting and size < enough:
        each: Any = waiting.pop()
        size += _COST_OF_VALUE
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, Mapping):
            size += sum(map(len, each))
            waiting.extend(each.values())
        elif isinstance(each, list | tuple):
            waiting.extend(each)
        elif isinstance(each, FunctionTool):
            waiting += [each.name, each.description, each.parameters]
    return size


def _cleaned(message: Mapping[str, Any], format: ChatFormat) -> dict[str, Any]:
    """The message without empty fields, since templates test whether a field exists.

    Its reasoning is in the fields that the template reads; ``_in_form`` makes blocks of it.
    """
    cleaned = {key: value for key, value in message.items() if value is not None}
    cleaned["content"] = message.get("content") or ""
    calls = cleaned.pop("tool_calls", None)
    if calls:
        cleaned["tool_calls"] = [dict(call) for call in calls]
    if format.reasoning_blocks or "reasoning_content" not in cleaned:
        return cleaned
    text = cleaned.pop("reasoning_content")
    if format.content.preamble and calls:
        # The text before a call and reasoning are one text in gpt-oss's template.
        text, cleaned["content"] = _paragraphs(text, cleaned["content"]), ""
    return cleaned | dict.fromkeys(format.reasoning_fields or ("reasoning_content",), text)


def _in_form(messages: Sequence[Mapping[str, Any]], format: ChatFormat) -> list[dict[str, Any]]:
    """``messages`` with their contents as the template takes them, perhaps with reasoning."""
    written = []
    for each in messages:
        message, content = dict(each), as_templates_take_it(each["content"], format)
        if format.reasoning_blocks and "reasoning_content" in message:
            if isinstance(content, str):
                content = [{"type": "text", "text": content}] if content else []
            thoughts = {"type": "thinking", "thinking": message.pop("reasoning_content")}
            content = [thoughts, *content]
        written.append(message | {"content": content})
    return written


def _name_results(messages: Sequence[dict[str, Any]]) -> None:
    """Add function names to results: some templates need them, and OpenAI's form has only ids."""
    names: dict[str, str] = {}
    for message in messages:
        for call in message.get("tool_calls", ()):
            names[call["id"]] = call["function"]["name"]
        name = names.get(message.get("tool_call_id", ""))
        if message["role"] == "tool" and name is not None:
            message.setdefault("name", name)


def _shown(tool: FunctionTool) -> dict[str, Any]:
    """The tool for the template, with all keys, since templates do not test for them."""
    shown = tool.parameters if tool.shown is None else tool.shown
    parameters = shown if isinstance(shown, Mapping) else None
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description or "",
            "parameters": parameters or {"type": "object", "properties": {}},
        },
    }


def _fit_ids(messages: Sequence[dict[str, Any]], ids: CallIds) -> None:
    """Adapt the ids of calls and their results to the template."""
    fitting: dict[str, str] = {}  # clients may use an id again: the last call counts
    number = count()
    for message in messages:
        for call in message.get("tool_calls", ()):
            foreign = call["id"]
            call["id"] = ids.fitting(foreign, call["function"]["name"], next(number))
            fitting[foreign] = call["id"]
        if "tool_call_id" in message:
            foreign = message["tool_call_id"]
            name = message.get("name", "")
            message["tool_call_id"] = fitting.get(foreign) or ids.fitting(foreign, name, 0)


def _written_out(messages: Sequence[dict[str, Any]], format: SpelledCalls) -> list[dict[str, Any]]:
    """Messages for templates without calls. Results are merged so that roles still alternate."""
    written: list[tuple[dict[str, Any], list[Any]]] = []  # with the contents to be merged
    after_result = False
    for message in messages:
        result = message["role"] == "tool"
        plain = _with_calls(message, format)
        if result:
            name = message.get("name", message.get("tool_call_id", "the function"))
            plain = {"role": "user", "content": f"Result of {name}:\n{message['content']}"}
        contents: list[Any] = []
        both_user = written and written[-1][0]["role"] == plain["role"] == "user"
        if both_user and (result or after_result):
            _, contents = written.pop()
        contents.append(plain["content"])
        written.append((plain, contents))
        after_result = result
    return [
        {**plain, "content": _paragraphs(*contents) if len(contents) > 1 else contents[0]}
        for plain, contents in written
    ]


def _instructed(
    messages: list[dict[str, Any]], instructions: str, format: ChatFormat, *, first: bool = False
) -> list[dict[str, Any]]:
    """``messages`` with ``instructions`` at the end of the system message, or ``first`` in it.

    If the template takes no system message, they come first in the first message of the user.
    """
    role = "system" if format.takes_system else "user"
    places = messages[:1] if format.takes_system else messages
    at = next((n for n, each in enumerate(places) if each["role"] == role), None)
    if at is None:
        return [{"role": role, "content": instructions}, *messages]
    here = messages[at]
    texts = instructions, here["content"]
    content = _paragraphs(*(texts if first or role == "user" else reversed(texts)))
    return [*messages[:at], {**here, "content": content}, *messages[at + 1 :]]


def _with_calls(message: Mapping[str, Any], format: SpelledCalls) -> dict[str, Any]:
    """``message`` with its calls in its text, as the model writes them."""
    plain = {key: value for key, value in message.items() if key != "tool_calls"}
    if "tool_calls" in message:
        functions = [call["function"] for call in message["tool_calls"]]
        calls = [{**each, "arguments": format.written(each["arguments"])} for each in functions]
        texts = (message["content"], format.spelled(calls))
        plain["content"] = ("\n" if format.native else "\n\n").join(filter(None, texts))
    return plain


def _instructions(
    tools: Sequence[FunctionTool], format: SpelledCalls, *, reads_schemas: bool
) -> str:
    """The text that lists ``tools``. If the model reads schemas, keywords that masks enforce are
    left out: weak models then make more correct calls (decision 69)."""
    functions = [_shown(tool)["function"] for tool in tools]
    separators = None
    if reads_schemas:
        separators = (",", ":")
        for each in functions:
            each["parameters"] = kept_schema(each["parameters"])
    lines = [json.dumps(each, ensure_ascii=False, separators=separators) for each in functions]
    form = format.spelled([{"name": "NAME", "arguments": "{ARGUMENTS}"}])
    return _INSTRUCTIONS.format(functions="\n".join(lines), form=form)


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)
