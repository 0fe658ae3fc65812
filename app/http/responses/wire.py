"""Requests for responses as they are on the wire (OpenAI API reference, and extensions)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from app.answer.images import ImageSource
from app.core.specs import Grammar, Regex
from app.http.requests.constraints import ExtensionFields, ResponseFormat
from app.http.requests.generation import GenerationFields
from app.http.requests.images import Detail, ImagePart, ImageRules, not_kept, source_of_url
from app.http.requests.messages import RefusalPart, TextPart
from app.http.requests.prompt import SchemaInPrompt
from app.http.requests.reasoning import ReasoningFields, ThinkingSwitch
from app.http.requests.tools import AnyInput, CustomDefinition, FunctionDefinition, InputGrammar
from app.http.requests.unserved import NO_EFFECT, RESPONSES, left_out, refused
from app.http.requests.wire import (
    Body,
    Count,
    Name,
    Other,
    TokenLimit,
    Unserved,
    Wire,
    missing,
    type_among,
)


class InputText(TextPart):
    type: Literal["input_text"]
    prompt_cache_breakpoint: dict[str, Any] | None = None
    """A hint about caches."""


class OutputText(TextPart):
    """Text of an earlier answer. Its annotations and log-probabilities are not shown again."""

    type: Literal["output_text"]
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class InputImage(ImagePart):
    type: Literal["input_image"]
    image_url: str | None = None
    file_id: str | None = None
    detail: Detail | None = None

    def located(self, param: str, rules: ImageRules) -> ImageSource:
        if self.file_id is not None:
            raise not_kept(f"{param}.file_id")
        if self.image_url is None:
            raise missing(f"{param}.image_url")
        return source_of_url(self.image_url, self.detail, param, f"{param}.image_url", rules)


Part = Annotated[
    Annotated[InputText, Tag("input_text")]
    | Annotated[InputImage, Tag("input_image")]
    | Annotated[OutputText, Tag("output_text")]
    | Annotated[RefusalPart, Tag("refusal")]
    | Annotated[Other, Tag("other")],
    Discriminator(type_among("input_text", "input_image", "output_text", "refusal")),
]

Status = Literal["in_progress", "completed", "incomplete"]


class MessageItem(Wire):
    """A message in either of its forms: ``type``, ``id`` and ``status`` may be left out."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[Part], Field(fail_fast=True)]
    id: str | None = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class _Call(Wire):
    """An earlier call, or its result."""

    call_id: str
    id: str | None = None
    status: Status | None = None
    caller: None = None
    namespace: str | None = None
    """That of the tool, where it has one."""


class FunctionCall(_Call):
    type: Literal["function_call"]
    name: str
    arguments: str
    async_: Literal[False] | None = Field(default=None, alias="async")


class FunctionCallOutput(_Call):
    type: Literal["function_call_output"]
    output: str | Annotated[list[Part], Field(fail_fast=True)]
    name: str | None = None


class CustomCallItem(_Call):
    type: Literal["custom_tool_call"]
    name: str
    input: str
    async_: Literal[False] | None = Field(default=None, alias="async")


class CustomToolCallOutput(FunctionCallOutput):
    type: Literal["custom_tool_call_output"]  # type: ignore[assignment]


class SummaryText(Wire):
    type: Literal["summary_text"]
    text: str


class ReasoningText(Wire):
    type: Literal["reasoning_text"]
    text: str


class Reasoning(Wire):
    type: Literal["reasoning"]
    summary: Annotated[list[SummaryText], Field(fail_fast=True)] | None = None
    content: Annotated[list[ReasoningText], Field(fail_fast=True)] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    status: Status | None = None


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[CustomCallItem, Tag("custom_tool_call")]
    | Annotated[CustomToolCallOutput, Tag("custom_tool_call_output")]
    | Annotated[Reasoning, Tag("reasoning")]
    | Annotated[Other, Tag("other")],
    Discriminator(
        type_among(
            *("message", "function_call", "function_call_output", "reasoning"),
            *("custom_tool_call", "custom_tool_call_output"),
            default="message",
        )
    ),
]


class TextConfig(Wire):
    unserved: ClassVar[Mapping[str, Unserved]] = {"verbosity": left_out("medium")}

    format: ResponseFormat | None = None


class _ToolParam(Wire):
    """What OpenAI's newer models do with tools; these values ask for nothing."""

    unserved: ClassVar[Mapping[str, Unserved]] = {"defer_loading": left_out(False)}
    """A tool that could be loaded later is offered at once."""

    allowed_callers: list[Literal["direct"]] | None = None
    async_: Literal[False] | None = Field(default=None, alias="async")


class FunctionToolParam(FunctionDefinition, _ToolParam):
    type: Literal["function"]
    output_schema: None = None


class ResponsesGrammarInput(InputGrammar):
    type: Literal["grammar"]


class ResponsesCustomTool(CustomDefinition, _ToolParam):
    type: Literal["custom"]
    format: Annotated[AnyInput | ResponsesGrammarInput, Field(discriminator="type")] | None = None

    @property
    def input(self) -> Grammar | Regex | None:
        return self.format.spec if isinstance(self.format, ResponsesGrammarInput) else None


InnerTool = Annotated[
    Annotated[FunctionToolParam, Tag("function")]
    | Annotated[ResponsesCustomTool, Tag("custom")]
    | Annotated[Other, Tag("other")],
    Discriminator(type_among("function", "custom")),
]


class Namespace(Wire):
    """Tools under one name: those of an MCP server, as Codex sends them."""

    type: Literal["namespace"]
    name: Name
    description: str | None = None
    tools: Annotated[list[InnerTool], Field(max_length=128, fail_fast=True)]


Tool = Annotated[
    Annotated[FunctionToolParam, Tag("function")]
    | Annotated[ResponsesCustomTool, Tag("custom")]
    | Annotated[Namespace, Tag("namespace")]
    | Annotated[Other, Tag("other")],
    Discriminator(type_among("function", "custom", "namespace")),
]


class ResponsesNamedTool(Wire):
    type: Literal["function", "custom", "namespace"]
    """A namespace, which only ``allowed_tools`` names, is all of its tools."""
    name: str
    namespace: str | None = None


def _choice_type(value: Any) -> str:
    found = type_among("function", "custom", "allowed_tools")(value)
    return "named" if found in ("function", "custom") else found


class ResponsesAllowedTools(Wire):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[ResponsesNamedTool], Field(min_length=1)]


ToolChoice = (
    Literal["none", "auto", "required"]
    | Annotated[
        Annotated[ResponsesNamedTool, Tag("named")]
        | Annotated[ResponsesAllowedTools, Tag("allowed_tools")]
        | Annotated[Other, Tag("other")],
        Discriminator(_choice_type),
    ]
)


class ReasoningOptions(ReasoningFields):
    unserved: ClassVar[Mapping[str, Unserved]] = {
        "context": refused("the input says what the model sees; leave it out", "auto"),
        "generate_summary": left_out("auto", "none"),
        "mode": refused("leave it out", "standard"),
        "summary": left_out("auto", "none"),
    }
    """Of summaries: the reasoning itself is shown."""


Label = Annotated[str, Field(max_length=1024)]


class ConversationFields(Body):
    """What the prompt is made of."""

    unserved: ClassVar[Mapping[str, Unserved]] = RESPONSES
    no_effect: ClassVar[frozenset[str]] = NO_EFFECT

    model: str | None = None
    input: str | Annotated[list[Item], Field(min_length=1, fail_fast=True)]
    """May be left out where a ``previous_response_id`` is given."""
    previous_response_id: str | None = None
    """Its input and output come before ``input``, if it was kept."""
    instructions: str | None = None
    text: TextConfig | None = None
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    """Extension: variables of the chat template."""
    thinking: ThinkingSwitch | None = None
    """As in chat completions; here ``reasoning`` has more to say."""
    schema_in_prompt: SchemaInPrompt | None = None
    """Extension: tell the model the answer's schema; None is the server's default."""


class ResponsesRequest(ConversationFields, GenerationFields, ExtensionFields):
    """The fields this server acts on or gives back; None means the default."""

    model: str
    store: bool | None = None
    """False keeps nothing of it."""
    max_output_tokens: TokenLimit | None = None
    max_tool_calls: Count | None = None
    """Bounds the calls that the server makes itself: it makes none."""
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: Annotated[list[str], Field(max_length=32)] | None = None
    metadata: (
        Annotated[
            dict[
                Annotated[str, Field(max_length=64)],
                Annotated[str, Field(max_length=512)],
            ],
            Field(max_length=16),
        ]
        | None
    ) = None
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
