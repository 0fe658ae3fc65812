"""Chat completion requests as they are on the wire (OpenAI API reference, and extensions)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from app.core.specs import Grammar, Regex
from app.http.requests.constraints import ConstraintFields
from app.http.requests.generation import (
    NO_EFFECT,
    NOT_SERVED,
    ChoiceFields,
    GenerationFields,
    StreamOptions,
)
from app.http.requests.messages import RefusalPart, TextPart
from app.http.requests.reasoning import ReasoningFields
from app.http.requests.tools import AnyInput, CustomDefinition, FunctionDefinition, InputGrammar
from app.http.requests.wire import (
    Body,
    Count,
    Effort,
    NotServed,
    Other,
    Wire,
    type_among,
)


def _kind(value: Any) -> str:
    """Of a tool, a name of one, or a call: without a type it is a function's."""
    return "custom" if isinstance(value, dict) and value.get("type") == "custom" else "function"


class ChatText(TextPart, extra="ignore"):
    type: Literal["text"]


class ChatRefusal(RefusalPart, extra="ignore"):
    pass


class OtherPart(Other, extra="allow"):
    """An image, a sound, a file."""


Part = Annotated[
    Annotated[ChatText, Tag("text")]
    | Annotated[ChatRefusal, Tag("refusal")]
    | Annotated[OtherPart, Tag("other")],
    Discriminator(type_among("text", "refusal")),
]


class CalledFunction(Wire, extra="ignore"):
    name: str
    arguments: str


class ToolCall(Wire, extra="ignore"):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class CalledCustom(Wire, extra="ignore"):
    name: str
    input: str


class CustomToolCall(Wire, extra="ignore"):
    id: str
    type: Literal["custom"]
    custom: CalledCustom


AnyToolCall = Annotated[
    Annotated[ToolCall, Tag("function")] | Annotated[CustomToolCall, Tag("custom")],
    Discriminator(_kind),
]


class Message(Wire, extra="ignore"):
    """A message of the conversation.

    What is not declared is ignored, here and in its parts, as OpenAI does: clients leave notes of
    their own in messages that they send back (``provider_specific_fields``, ``cache_control``).
    """

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


class GrammarInput(Wire):
    type: Literal["grammar"]
    grammar: InputGrammar


class CustomTool(CustomDefinition):
    format: Annotated[AnyInput | GrammarInput, Field(discriminator="type")] | None = None

    @property
    def input(self) -> Grammar | Regex | None:
        return self.format.grammar.spec if isinstance(self.format, GrammarInput) else None


class CustomToolParam(Wire):
    type: Literal["custom"]
    custom: CustomTool

    @property
    def definition(self) -> CustomTool:
        return self.custom


Tool = Annotated[
    Annotated[FunctionTool, Tag("function")] | Annotated[CustomToolParam, Tag("custom")],
    Discriminator(_kind),
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


class AllowedTools(Wire):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(min_length=1)]


class AllowedToolsChoice(Wire):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoice = (
    Literal["none", "auto", "required"]
    | Annotated[NamedFunction | NamedCustomTool | AllowedToolsChoice, Field(discriminator="type")]
)


class ConversationFields(Body):
    """What the prompt is made of."""

    model: str | None = None
    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None
    reasoning_effort: Effort | None = None
    reasoning: ReasoningFields | None = None
    include_reasoning: bool | None = None
    """The older form of ``reasoning.exclude``."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Extension: variables of the chat template, of which a few are passed on."""


class ChatCompletionRequest(ConversationFields, GenerationFields, ChoiceFields, ConstraintFields):
    """The fields this server acts on; None means the default, as OpenAI takes null."""

    not_served: ClassVar[NotServed] = {
        **NOT_SERVED,
        "add_generation_prompt": (None, True),
        "add_special_tokens": (None, False),
        "audio": (None,),
        "best_of": (None, 1),
        "chat_template": (None,),
        "continue_final_message": (None, False),
        "documents": (None, []),
        "function_call": (None, "none"),
        "functions": (None, []),
        "mm_processor_kwargs": (None, {}),
        "modalities": (None, ["text"]),
        "moderation": (None,),
        "prediction": (None,),
        "separate_reasoning": (None, True),
        "stream_reasoning": (None, True),
        "verbosity": (None, "medium"),
        "web_search_options": (None,),
    }
    no_effect: ClassVar[frozenset[str]] = NO_EFFECT | {"prompt_cache_options"}

    model: str
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Count | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
