"""Chat completion requests as they are on the wire (OpenAI API reference, and extensions)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from app.answer.images import ImageSource
from app.core.specs import Grammar, Regex
from app.http.requests.constraints import ConstraintFields
from app.http.requests.generation import GenerationFields
from app.http.requests.images import Detail, ImagePart, ImageRules, source_of_url
from app.http.requests.messages import RefusalPart, TextPart
from app.http.requests.prompt import SchemaInPrompt
from app.http.requests.reasoning import ReasoningFields, ThinkingSwitch
from app.http.requests.tools import AnyInput, CustomDefinition, FunctionDefinition, InputGrammar
from app.http.requests.unserved import CHAT, NO_EFFECT
from app.http.requests.wire import (
    Body,
    Count,
    Effort,
    Other,
    TokenLimit,
    Unserved,
    Wire,
    type_among,
)


def _kind(value: Any) -> str:
    """Of a name of a tool, or a call: without a type it is a function's."""
    return "custom" if isinstance(value, dict) and value.get("type") == "custom" else "function"


class ChatText(TextPart):
    has_notes = True

    type: Literal["text"]


class ChatRefusal(RefusalPart):
    has_notes = True


class ChatImageUrl(Wire):
    has_notes = True

    url: str
    detail: Detail | None = None


class ChatImage(ImagePart):
    type: Literal["image_url"]
    image_url: str | ChatImageUrl
    detail: Detail | None = None
    """Where ``image_url`` is the URL itself."""

    def located(self, param: str, rules: ImageRules) -> ImageSource:
        match self.image_url:
            case ChatImageUrl(url=url, detail=detail):
                return source_of_url(url, detail, param, f"{param}.image_url.url", rules)
            case url:
                return source_of_url(url, self.detail, param, f"{param}.image_url", rules)


Part = Annotated[
    Annotated[ChatText, Tag("text")]
    | Annotated[ChatImage, Tag("image_url")]
    | Annotated[ChatRefusal, Tag("refusal")]
    | Annotated[Other, Tag("other")],
    Discriminator(type_among("text", "image_url", "refusal")),
]


class CalledFunction(Wire):
    has_notes = True

    name: str
    arguments: str


class ToolCall(Wire):
    has_notes = True

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class CalledCustom(Wire):
    has_notes = True

    name: str
    input: str


class ChatCustomCall(Wire):
    has_notes = True

    id: str
    type: Literal["custom"]
    custom: CalledCustom


AnyToolCall = Annotated[
    Annotated[ToolCall, Tag("function")] | Annotated[ChatCustomCall, Tag("custom")],
    Discriminator(_kind),
]


class ChatMessage(Wire):
    """A message of the conversation.

    Clients leave notes of their own in messages that they send back
    (``provider_specific_fields``, ``cache_control``), as OpenAI lets them.
    """

    has_notes = True

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[Part], Field(fail_fast=True)] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Annotated[list[AnyToolCall], Field(fail_fast=True)] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    # An answer that the SDK sends back as history carries these, with nothing in them.
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None


class FunctionTool(Wire):
    type: Literal["function"]
    function: FunctionDefinition

    @property
    def definition(self) -> FunctionDefinition:
        return self.function


class ChatGrammarInput(Wire):
    type: Literal["grammar"]
    grammar: InputGrammar


class ChatCustomTool(CustomDefinition):
    format: Annotated[AnyInput | ChatGrammarInput, Field(discriminator="type")] | None = None

    @property
    def input(self) -> Grammar | Regex | None:
        return self.format.grammar.spec if isinstance(self.format, ChatGrammarInput) else None


class ChatCustomToolParam(Wire):
    type: Literal["custom"]
    custom: ChatCustomTool

    @property
    def definition(self) -> ChatCustomTool:
        return self.custom


Tool = Annotated[
    Annotated[FunctionTool, Tag("function")]
    | Annotated[ChatCustomToolParam, Tag("custom")]
    | Annotated[Other, Tag("other")],
    Discriminator(type_among("function", "custom", default="function")),
]


class ToolName(Wire):
    name: str


class NamedFunction(Wire):
    type: Literal["function"]
    function: ToolName

    @property
    def name(self) -> str:
        return self.function.name


class NamedCustomTool(Wire):
    type: Literal["custom"]
    custom: ToolName

    @property
    def name(self) -> str:
        return self.custom.name


NamedTool = Annotated[
    Annotated[NamedFunction, Tag("function")] | Annotated[NamedCustomTool, Tag("custom")],
    Discriminator(_kind),
]


class ChatAllowedTools(Wire):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(min_length=1)]


class AllowedToolsChoice(Wire):
    type: Literal["allowed_tools"]
    allowed_tools: ChatAllowedTools


ToolChoice = (
    Literal["none", "auto", "required"]
    | Annotated[NamedFunction | NamedCustomTool | AllowedToolsChoice, Field(discriminator="type")]
)


class ConversationFields(Body):
    """What the prompt is made of."""

    model: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)]
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None
    reasoning_effort: Effort | None = None
    reasoning: ReasoningFields | None = None
    include_reasoning: bool | None = None
    """The older form of ``reasoning.exclude``."""
    thinking: ThinkingSwitch | None = None
    """Anthropic's, which GLM's, Kimi's and DeepSeek's servers take in chat completions."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Extension: variables of the chat template."""
    continue_final_message: bool | None = None
    """vLLM's: the last message, the assistant's, is the beginning of the answer."""
    add_generation_prompt: bool | None = None
    """vLLM's: false ends the prompt behind the messages, and opens none of the assistant's."""


class ChatCompletionRequest(ConversationFields, GenerationFields, ConstraintFields):
    """The fields this server acts on; None means the default, as OpenAI takes null."""

    unserved: ClassVar[Mapping[str, Unserved]] = CHAT
    no_effect: ClassVar[frozenset[str]] = NO_EFFECT

    model: str
    schema_in_prompt: SchemaInPrompt | None = None
    """Extension: tell the model the answer's schema; None is the server's default."""
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    n: Count | None = None
    max_tokens: TokenLimit | None = None
    max_completion_tokens: TokenLimit | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
