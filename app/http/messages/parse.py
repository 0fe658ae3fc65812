"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: from JSON to a generation request.

The models follow Anthropic's API reference, with extensions. ``cache_control`` is accepted
wherever Anthropic accepts it, and has no effect: prefixes are always shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter
from pydantic import Field

from app.answer.formats.reasoning import DEFAULT_REASONING, ReasoningUse
from app.answer.images import ImageSource, joined, without_images
from app.answer.prompt import Conversation
from app.answer.tools import FunctionTool, ToolUse
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidRequest
from app.core.specs import JsonSchema
from app.core.verbatim import Passage
from app.http.config import ApiConfig
from app.http.endpoint import AnswerCall, Api, endpoint
from app.http.errors import ANTHROPIC
from app.http.messages.write import AnsweredMessage, CountedTokens, MessageEvent, messages_renderer
from app.http.openapi import GENERATES, MessagesError, describe
from app.http.requests.fields import GenerationFields, answer_call, token_limit
from app.http.requests.messages import (
    ImagePart,
    ImageReader,
    ImageRules,
    TemplateMessages,
    check_message_count,
    file_not_kept,
    source_of_base64,
    source_of_url,
    take_prefill,
)
from app.http.requests.prompt import (
    ReasoningFields,
    SchemaInPrompt,
    asked_reasoning,
    schema_prompt,
    template_words,
)
from app.http.requests.tools import Definition, function_tools, leave_out_others, tool_use
from app.http.requests.unsupported import MESSAGES, NO_EFFECT, left_out
from app.http.requests.wire import (
    Body,
    ByType,
    Count,
    Extensible,
    Ignored,
    Other,
    TokenLimit,
    Unsupported,
    Wire,
    invalid,
)
from app.serving.admission import Ticket

CacheControl = dict[str, Any] | None


class TextBlock(Extensible):
    type: Literal["text"]
    text: str


class PlainText(Wire):
    type: Literal["text"]
    data: str
    media_type: Literal["text/plain"] = "text/plain"


class DocumentBlock(Extensible):
    type: Literal["document"]
    source: Annotated[PlainText | Other, ByType()]
    title: str | None = None
    context: str | None = None


class SearchResultBlock(Extensible):
    type: Literal["search_result"]
    source: str
    title: str
    content: list[TextBlock]


class ThinkingBlock(Extensible):
    type: Literal["thinking"]
    thinking: str
    signature: str | None = None
    """Signature by another server; this server's are empty."""


class ToolUseBlock(Extensible):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class Base64Image(Wire):
    type: Literal["base64"]
    media_type: str
    data: str


class UrlImage(Wire):
    type: Literal["url"]
    url: str


class ImageBlock(ImagePart):
    type: Literal["image"]
    source: Annotated[Base64Image | UrlImage | Other, ByType()]

    def located(self, param: str, rules: ImageRules) -> ImageSource:
        field = f"{param}.source"
        match self.source:
            case Base64Image(media_type=media_type, data=data):
                return source_of_base64(data, media_type, False, param, f"{field}.data", rules)
            case UrlImage(url=url):
                return source_of_url(url, None, param, f"{field}.url", rules)
        raise file_not_kept(field)


_Shown = TextBlock | DocumentBlock | SearchResultBlock | ImageBlock
ContentBlock = Annotated[_Shown | Other, ByType()]


class ToolResultBlock(Extensible):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Annotated[list[ContentBlock], Field(fail_fast=True)] | None = None
    is_error: bool | None = None


AnyBlock = Annotated[_Shown | ThinkingBlock | ToolUseBlock | ToolResultBlock | Other, ByType()]


class MessageParam(Wire):
    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[AnyBlock], Field(fail_fast=True)]


class MessagesTool(Definition):
    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    input_schema: dict[str, Any]
    strict: bool | None = None
    cache_control: CacheControl = None
    input_examples: list[dict[str, Any]] | None = None
    """Accepted, but not shown in the prompt: chat templates have no place for examples."""
    eager_input_streaming: bool | None = None
    """No effect: arguments are always streamed as they are generated."""
    allowed_callers: list[Literal["direct"]] | None = None
    unsupported: ClassVar[Mapping[str, Unsupported]] = {"defer_loading": left_out(False)}
    """A tool that could be loaded later is offered at once."""

    @property
    def tool(self) -> FunctionTool:
        # Anthropic leaves objects open unless the tool is strict.
        return FunctionTool(self.name, self.description, self.input_schema, bool(self.strict))


Tool = Annotated[MessagesTool | Other, ByType("custom")]


class _Choice(Wire):
    disable_parallel_tool_use: bool | None = None


class FreeChoice(_Choice):
    type: Literal["auto", "any"]


class NoTool(Wire):
    type: Literal["none"]


class MessagesNamedTool(_Choice):
    type: Literal["tool"]
    name: str


AnyToolChoice = Annotated[FreeChoice | NoTool | MessagesNamedTool, Field(discriminator="type")]

Display = Literal["summarized", "omitted"]


class ThinkingEnabled(Wire):
    type: Literal["enabled"]
    budget_tokens: Count
    display: Display | None = None


class ThinkingAdaptive(Wire):
    type: Literal["adaptive"]
    display: Display | None = None


class ThinkingDisabled(Wire):
    type: Literal["disabled"]


Thinking = Annotated[
    ThinkingEnabled | ThinkingAdaptive | ThinkingDisabled, Field(discriminator="type")
]


class JsonSchemaOutput(Wire):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Wire):
    format: JsonSchemaOutput | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class ThinkingTurns(Wire):
    type: Literal["thinking_turns"]
    value: Count


class AllTurns(Wire):
    type: Literal["all"]


class ClearThinking(Wire):
    """Removes the thinking of earlier answers, except for the last ``keep`` ones."""

    type: Literal["clear_thinking_20251015"]
    keep: Literal["all"] | Annotated[ThinkingTurns | AllTurns, Field(discriminator="type")] = (
        ThinkingTurns(type="thinking_turns", value=1)
    )


class ContextManagement(Wire):
    """Edits of other types only apply to long prompts, and are ignored."""

    edits: list[Annotated[ClearThinking | Other, ByType()]] = Field(default=[])


class ConversationFields(Body):
    """The fields that determine the prompt."""

    model: str
    messages: Annotated[list[MessageParam], Field(min_length=1, fail_fast=True)]
    system: str | list[TextBlock] | None = None
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None
    tool_choice: AnyToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: JsonSchemaOutput | None = None
    """The older name of ``output_config.format``."""
    context_management: ContextManagement | None = None
    cache_control: CacheControl = None
    schema_in_prompt: SchemaInPrompt | None = None
    """Extension: tell the model the answer's schema; None is the server's default."""


class CountTokensRequest(ConversationFields):
    unsupported = MESSAGES
    no_effect = NO_EFFECT


class MessagesRequest(ConversationFields, GenerationFields):
    """The fields this server acts on; None means the default."""

    unsupported = MESSAGES
    no_effect = NO_EFFECT

    max_tokens: TokenLimit
    stop: Annotated[list[str], Field(max_length=16)] | None = Field(
        default=None, alias="stop_sequences"
    )


PATH = ANTHROPIC
COUNT = f"{PATH}/count_tokens"


def messages_call(body: Mapping[str, Any], ignored: Ignored, api: Api) -> AnswerCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire = MessagesRequest.read(body, ignored)
    model = api.models.find(wire.model)
    content = _content(wire, api.config)
    conversation, tools = read_conversation(wire, ignored, api.config)
    return answer_call(
        wire,
        model,
        [conversation],
        content,
        token_limit(wire, "max_tokens"),
        partial(
            messages_renderer,
            model=model,
            stream=bool(wire.stream),
            omits_thinking=getattr(wire.thinking, "display", None) == "omitted",
        ),
        tools=_tool_use(wire, tools, api.config),
    )


def read_conversation(
    wire: ConversationFields, ignored: Ignored, config: ApiConfig
) -> tuple[Conversation, list[FunctionTool]]:
    """The conversation of the prompt, and all tools of the request. Raises ``InvalidRequest``."""
    check_message_count(wire.messages, config.max_messages)
    leave_out_others(wire.tools, ignored)
    tools = function_tools(
        (f"tools[{number}]", tool)
        for number, tool in enumerate(wire.tools or ())
        if not isinstance(tool, Other)
    )
    shown = () if isinstance(wire.tool_choice, NoTool) else tools
    images = ImageReader(config.images, TEXTS, "image", kind="blocks")
    messages, passages = template_messages(wire.system, wire.messages, images, ignored)
    _clear_thinking(wire, messages, ignored)
    prefill = None
    if wire.messages[-1].role == "assistant":
        prefill = take_prefill(messages, f"messages[{len(wire.messages) - 1}]")
        passages = passages[:-1]
    use, variables = _reasoning(wire, config)
    note = schema_prompt(wire.schema_in_prompt, _content(wire, config)[1], config, "output_config")
    conversation = Conversation(
        messages, shown, variables, passages, use, note, images.sources, prefill
    )
    return conversation, tools


def _clear_thinking(
    wire: ConversationFields, messages: list[dict[str, Any]], ignored: Ignored
) -> None:
    """Remove thinking from ``messages`` as ``context_management`` asks."""
    edits = wire.context_management.edits if wire.context_management else ()
    kept = None  # the fewest of all edits
    for number, edit in enumerate(edits):
        if isinstance(edit, Other):
            param = f"context_management.edits[{number}].type"
            reason = f"{param}: edits of the type {edit.type!r} are not supported; leave it out"
            ignored.leave_out(param, reason, name=f"context_management.edits[].type={edit.type}")
        elif isinstance(edit.keep, ThinkingTurns):
            kept = min(edit.keep.value, kept or edit.keep.value)
    if kept is not None:
        for message in [each for each in messages if "reasoning_content" in each][:-kept]:
            del message["reasoning_content"]


def _tool_use(
    wire: ConversationFields, tools: list[FunctionTool], config: ApiConfig
) -> ToolUse | None:
    choice = wire.tool_choice
    if choice is None:
        return tool_use(tools, config)
    if isinstance(choice, NoTool):
        return None
    names = {choice.name} if isinstance(choice, MessagesNamedTool) else None
    once = bool(choice.disable_parallel_tool_use)
    return tool_use(
        tools, config, "auto" if choice.type == "auto" else "required", names, once=once
    )


def _reasoning(wire: ConversationFields, config: ApiConfig) -> tuple[ReasoningUse, dict[str, Any]]:
    """Reasoning settings and template variables. ``effort`` alone does not ask for reasoning."""
    effort = wire.output_config.effort if wire.output_config else None
    match wire.thinking:
        case ThinkingDisabled():
            return asked_reasoning(ReasoningFields(enabled=False), config, param="thinking")
        case ThinkingEnabled(budget_tokens=budget):
            fields = ReasoningFields(effort=effort, max_tokens=budget)
            return asked_reasoning(fields, config, param="thinking")
    return DEFAULT_REASONING, template_words(True if wire.thinking else None, effort, None, config)


def _content(wire: ConversationFields, config: ApiConfig) -> tuple[str, ConstraintSpec | None]:
    """The field for the content's constraint, and the constraint, if there is one."""
    new = wire.output_config.format if wire.output_config else None
    if new is not None and wire.output_format is not None:
        raise InvalidRequest(
            "output_format is the older name of output_config.format; send only one of them",
            param="output_format",
        )
    asked: JsonSchemaOutput | None = new or wire.output_format
    param = "output_config.format" if wire.output_format is None else "output_format"
    if asked is None:
        return param, None
    return param, JsonSchema(asked.schema_, close_objects=True, whitespace=config.whitespace)


_BETWEEN = "\n"
"""Separator of blocks of text."""
TEXTS = "text, document, search_result, thinking, tool_use and tool_result"
"""Types of blocks that are accepted whether or not the model supports images."""
_OMITTED = frozenset(
    [
        *("redacted_thinking", "server_tool_use", "mcp_tool_use", "mcp_tool_result", "compaction"),
        *("web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result"),
        *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result"),
        *("tool_search_tool_result", "container_upload"),
    ]
)
"""Blocks of earlier answers for tools of another server, and encrypted thinking."""


def template_messages(
    system: str | Sequence[TextBlock] | None,
    messages: Sequence[MessageParam],
    images: ImageReader,
    ignored: Ignored,
) -> tuple[list[dict[str, Any]], list[Passage]]:
    """The messages for the chat template, and their texts under the names of this API.

    ``images`` collects the images, which have marks in the messages.

    Raises ``InvalidRequest`` that names the block.
    """
    conversation = _Blocks(images, ignored)
    if text := system if isinstance(system, str) else _BETWEEN.join([t.text for t in system or ()]):
        conversation.say("system", text)
    for number, message in enumerate(messages):
        param = f"messages[{number}]"
        content = message.content
        if isinstance(content, str):
            conversation.say(message.role, content)
            texts = [content]
        elif not content:
            raise invalid(f"{param}.content", "it must have at least one block")
        else:
            texts = [
                conversation.add(message.role, block, f"{param}.content[{index}]")
                for index, block in enumerate(content)
            ]
        text = _BETWEEN.join([each for each in map(without_images, texts) if each])
        conversation.passages.append(Passage(param, text, message.role == "user"))
    return conversation.joined(), conversation.passages


class _Blocks(TemplateMessages):
    """Converts messages made of blocks into messages for the chat template.

    Adjacent messages of a role are merged, as in Anthropic's API. Tool results, which are part of
    user messages there, become messages of their own before the text beside them::

        user: tool_result  tool_result  text   ->   tool  tool  user
    """

    def say(self, role: str, text: str) -> None:
        """Add text to the content, a list of texts until ``joined``."""
        message = self._open(role)
        if message["content"] in (None, [""]):
            message["content"] = []
        message["content"].append(text)

    def add(self, role: str, block: AnyBlock, param: str) -> str:
        """Add a block; returns its text, or "" for thinking, calls and results."""
        match block:
            case ThinkingBlock() | ToolUseBlock() if role != "assistant":
                raise invalid(param, f"blocks of type {block.type!r} belong to the assistant")
            case ToolResultBlock() if role != "user":
                raise invalid(param, "blocks of type 'tool_result' belong to the user")
            case ImageBlock() if role != "user":
                self._images.mark(block, param)
                raise invalid(param, "blocks of type 'image' belong to the user")
            case ThinkingBlock(thinking=text):
                self._think(self._open(role), text)
            case ToolUseBlock(id=id, name=name, input=arguments):
                self._call(id, name, arguments)
            case ToolResultBlock():
                self._add_result(block, param)
            case Other(type=type) if role == "assistant" and type in _OMITTED:
                self._open(role)
                if type != "redacted_thinking":
                    reason = f"{param}: blocks of type {type!r} are not supported"
                    self._ignored.leave_out(
                        f"{param}.type", reason, name=f"messages[].content[].type={type}"
                    )
            case _:
                text = self._text(block, param)
                self.say(role, text)
                return text
        return ""

    def _add_result(self, block: ToolResultBlock, param: str) -> None:
        id, content = block.tool_use_id, block.content
        lacking = f"{param}: no tool_use before this block has the id"
        self._check_called(id, lacking, f"{param}.tool_use_id")
        text = content if isinstance(content, str) else ""
        if isinstance(content, list):
            blocks = enumerate(content)
            text = joined([self._text(each, f"{param}.content[{n}]") for n, each in blocks])
        if block.is_error:
            text = f"Error: {text}"
        self._result(id, text)

    def _text(self, block: AnyBlock | ContentBlock, param: str) -> str:
        match block:
            case TextBlock(text=text):
                return text
            case ImageBlock():
                return self._images.mark(block, param)
            case DocumentBlock(source=PlainText(data=data), title=title, context=context):
                return _BETWEEN.join([each for each in (title, context, data) if each])
            case DocumentBlock(source=source):
                reason = f"documents of type {source.type!r} are not supported; send their text"
                raise invalid(f"{param}.source", reason)
            case SearchResultBlock(source=origin, title=title, content=content):
                return _BETWEEN.join([title, origin, *[each.text for each in content]])
        raise self._images.refused(block.type, param)


def _count_call(body: Mapping[str, Any], ignored: Ignored, api: Api) -> Conversation:
    wire = CountTokensRequest.read(body, ignored)
    api.models.find(wire.model)
    return read_conversation(wire, ignored, api.config)[0]


async def _count(prompt: Conversation, ticket: Ticket, api: Api) -> dict[str, Any]:
    return {"input_tokens": len(await api.service.tokenize(prompt, ticket))}


router = APIRouter()
router.post(
    PATH,
    openapi_extra=describe(
        "Answer a conversation (Anthropic's Messages API)",
        AnsweredMessage,
        event=MessageEvent,
        bodies=[MessagesRequest],
        errors=GENERATES,
        envelope=MessagesError,
    ),
)(endpoint(PATH, messages_call))
router.post(
    COUNT,
    openapi_extra=describe(
        "Count the tokens of a conversation's prompt",
        CountedTokens,
        bodies=[CountTokensRequest],
        errors=(400, 404, 413, 429, 504),
        envelope=MessagesError,
    ),
)(endpoint(COUNT, _count_call, _count))
