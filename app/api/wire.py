"""Chat completion requests as they are on the wire (OpenAI API reference, and our extensions)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from app.api.config import Whitespace

_MISSING = object()

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (None,),
    "chat_template": (None,),
    "function_call": (None, "none"),
    "functions": (None, []),
    "ignore_eos": (None, False),
    "min_tokens": (None, 0),
    "modalities": (None, ["text"]),
    "moderation": (None,),
    "prediction": (None,),
    "reasoning_effort": (None, "none"),
    "service_tier": (None, "auto", "default"),
    "store": (None, False),
    "tool_choice": (None, "none"),
    "tools": (None, []),
    "verbosity": (None, "medium"),
    "web_search_options": (None,),
}
"""Fields that clients know and this server does not have, with the values that ask for nothing."""

HARMLESS = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "user",
    }
)
"""Fields that do not change what is generated: labels, and hints about caches and tools."""


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TextPart(_Wire):
    type: Literal["text"]
    text: str


class Message(_Wire):
    """A message of the conversation; of its content parts, only text is served."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart]
    name: str | None = None
    tool_call_id: str | None = None
    # An answer that the SDK sends back as history carries these, with nothing in them.
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None
    refusal: None = None
    tool_calls: Annotated[list[Any], Field(max_length=0)] | None = None


class JsonSchemaFormat(_Wire):
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    schema_: Any = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextResponse(_Wire):
    type: Literal["text"]


class JsonObjectResponse(_Wire):
    type: Literal["json_object"]
    whitespace: Whitespace | None = None
    """Extension; None is the server's default."""


class JsonSchemaResponse(_Wire):
    type: Literal["json_schema"]
    json_schema: JsonSchemaFormat
    whitespace: Whitespace | None = None
    """Extension; None is the server's default."""


class RegexResponse(_Wire):
    type: Literal["regex"]
    pattern: str = Field(validation_alias=AliasChoices("pattern", "regex"))


class ChoiceResponse(_Wire):
    type: Literal["choice"]
    choices: Annotated[list[str], Field(min_length=1)]


class GrammarResponse(_Wire):
    """``syntax`` is found by itself: a line ``name ::= ...`` makes it GBNF, else it is Lark."""

    type: Literal["grammar"]
    grammar: str
    syntax: Literal["auto", "gbnf", "lark"] = "auto"


ResponseFormat = Annotated[
    TextResponse
    | JsonObjectResponse
    | JsonSchemaResponse
    | RegexResponse
    | ChoiceResponse
    | GrammarResponse,
    Field(discriminator="type"),
]


class StreamOptions(_Wire):
    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


class ChatCompletionRequest(_Wire):
    """The fields this server acts on; None means the default, as OpenAI takes null."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    response_format: ResponseFormat | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: (
        Annotated[
            dict[
                Annotated[int, Field(ge=0, strict=False)], Annotated[float, Field(ge=-100, le=100)]
            ],
            Field(max_length=1024),
        ]
        | None
    ) = None
    leap: bool | None = None
    """Extension: false decodes forced text token by token."""
    on_budget: Literal["finish", "truncate"] | None = None
    """Extension: near max_tokens, finish the answer within it or cut it as OpenAI does."""


def unsupported_field(body: Mapping[str, Any]) -> str | None:
    """The first known field of ``body`` that asks for something this server does not have."""
    for name, neutral in NEUTRAL.items():
        value = body.get(name, _MISSING)
        # 0 == False in Python, so types are compared too.
        if value is not _MISSING and not any(
            type(value) is type(each) and value == each for each in neutral
        ):
            return name
    return None
