"""Requests for messages as they are on the wire (Anthropic API reference, and extensions).

``cache_control`` may stand wherever Anthropic takes it: prefixes are shared without being told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from app.answer.images import ImageSource
from app.answer.tools import FunctionTool
from app.http.requests.generation import GenerationFields
from app.http.requests.images import (
    ImagePart,
    ImageRules,
    not_kept,
    source_of_base64,
    source_of_url,
)
from app.http.requests.prompt import SchemaInPrompt
from app.http.requests.tools import Definition
from app.http.requests.unserved import MESSAGES, NO_EFFECT, left_out
from app.http.requests.wire import Body, Count, Other, TokenLimit, Unserved, Wire, type_among

CacheControl = dict[str, Any] | None


class Block(Wire):
    """A part of a message. Clients send blocks back as they came, with notes of their own."""

    has_notes = True


class TextBlock(Block):
    type: Literal["text"]
    text: str


class PlainText(Wire):
    type: Literal["text"]
    data: str
    media_type: Literal["text/plain"] = "text/plain"


class OtherSource(Other):
    """A PDF, a URL, a file."""


class DocumentBlock(Block):
    type: Literal["document"]
    source: Annotated[
        Annotated[PlainText, Tag("text")] | Annotated[OtherSource, Tag("other")],
        Discriminator(type_among("text")),
    ]
    title: str | None = None
    context: str | None = None


class SearchResultBlock(Block):
    type: Literal["search_result"]
    source: str
    title: str
    content: list[TextBlock]


class ThinkingBlock(Block):
    type: Literal["thinking"]
    thinking: str
    signature: str | None = None
    """Another server's; here it is empty."""


class ToolUseBlock(Block):
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
    source: Annotated[
        Annotated[Base64Image, Tag("base64")]
        | Annotated[UrlImage, Tag("url")]
        | Annotated[OtherSource, Tag("other")],
        Discriminator(type_among("base64", "url")),
    ]

    def located(self, param: str, rules: ImageRules) -> ImageSource:
        field = f"{param}.source"
        match self.source:
            case Base64Image(media_type=media_type, data=data):
                return source_of_base64(data, media_type, False, param, f"{field}.data", rules)
            case UrlImage(url=url):
                return source_of_url(url, None, param, f"{field}.url", rules)
        raise not_kept(field)


class OtherBlock(Other):
    """What a tool of Anthropic's own server left, or thinking that nobody can read."""


_CONTENTS = ("text", "document", "search_result", "image")

ContentBlock = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[DocumentBlock, Tag("document")]
    | Annotated[SearchResultBlock, Tag("search_result")]
    | Annotated[ImageBlock, Tag("image")]
    | Annotated[OtherBlock, Tag("other")],
    Discriminator(type_among(*_CONTENTS)),
]


class ToolResultBlock(Block):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Annotated[list[ContentBlock], Field(fail_fast=True)] | None = None
    is_error: bool | None = None


AnyBlock = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[DocumentBlock, Tag("document")]
    | Annotated[SearchResultBlock, Tag("search_result")]
    | Annotated[ImageBlock, Tag("image")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Annotated[ToolResultBlock, Tag("tool_result")]
    | Annotated[OtherBlock, Tag("other")],
    Discriminator(type_among(*_CONTENTS, "thinking", "tool_use", "tool_result")),
]


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
    """The prompt does not show them: chat templates have no place for them."""
    eager_input_streaming: bool | None = None
    """Arguments always come as they are written."""
    allowed_callers: list[Literal["direct"]] | None = None
    unserved: ClassVar[Mapping[str, Unserved]] = {"defer_loading": left_out(False)}
    """A tool that could be loaded later is offered at once."""

    @property
    def tool(self) -> FunctionTool:
        # Anthropic leaves objects open unless told to be strict.
        return FunctionTool(self.name, self.description, self.input_schema, bool(self.strict))


class OtherTool(Other):
    """One that Anthropic's server runs, or whose schema only its models know."""


Tool = Annotated[
    Annotated[MessagesTool, Tag("custom")] | Annotated[OtherTool, Tag("other")],
    Discriminator(type_among("custom", default="custom")),
]


class _Choice(Wire):
    disable_parallel_tool_use: bool | None = None


class FreeChoice(_Choice):
    type: Literal["auto", "any"]


class NoTool(Wire):
    type: Literal["none"]


class MessagesNamedTool(_Choice):
    type: Literal["tool"]
    name: str


ToolChoice = Annotated[FreeChoice | NoTool | MessagesNamedTool, Field(discriminator="type")]

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
    """Earlier thinking goes, but that of the last answers."""

    type: Literal["clear_thinking_20251015"]
    keep: Literal["all"] | Annotated[ThinkingTurns | AllTurns, Field(discriminator="type")] = (
        ThinkingTurns(type="thinking_turns", value=1)
    )


class ContextManagement(Wire):
    """Edits of other types begin where a prompt is long, and are left out."""

    edits: list[
        Annotated[
            Annotated[ClearThinking, Tag("clear_thinking_20251015")]
            | Annotated[Other, Tag("other")],
            Discriminator(type_among("clear_thinking_20251015")),
        ]
    ] = Field(default=[])


class ConversationFields(Body):
    """What the prompt is made of."""

    model: str
    messages: Annotated[list[MessageParam], Field(min_length=1, fail_fast=True)]
    system: str | list[TextBlock] | None = None
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: JsonSchemaOutput | None = None
    """The older name of ``output_config.format``."""
    context_management: ContextManagement | None = None
    cache_control: CacheControl = None
    schema_in_prompt: SchemaInPrompt | None = None
    """Extension: tell the model the answer's schema; None is the server's default."""


class CountTokensRequest(ConversationFields):
    unserved: ClassVar[Mapping[str, Unserved]] = MESSAGES
    no_effect: ClassVar[frozenset[str]] = NO_EFFECT


class MessagesRequest(ConversationFields, GenerationFields):
    """The fields this server acts on; None means the default."""

    unserved: ClassVar[Mapping[str, Unserved]] = MESSAGES
    no_effect: ClassVar[frozenset[str]] = NO_EFFECT

    max_tokens: TokenLimit
    stop: Annotated[list[str], Field(max_length=16)] | None = Field(
        default=None, alias="stop_sequences"
    )
