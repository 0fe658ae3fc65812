"""Chat completion requests as they are on the wire (OpenAI API reference, and extensions)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from app.http.requests.constraints import ConstraintFields
from app.http.requests.sampling import SamplingFields
from app.http.requests.wire import Neutral, Wire, kind_among

NEUTRAL: Neutral = {
    "add_generation_prompt": (None, True),
    "add_special_tokens": (None, False),
    "allowed_token_ids": (None,),
    "audio": (None,),
    "bad_words": (None, []),
    "best_of": (None, 1),
    "cache_salt": (None,),
    "chat_template": (None,),
    "continue_final_message": (None, False),
    "documents": (None, []),
    "echo": (None, False),
    "function_call": (None, "none"),
    "functions": (None, []),
    "guided_decoding_backend": (None,),
    "guided_whitespace_pattern": (None,),
    "include_reasoning": (None, True),
    "include_stop_str_in_output": (None, False),
    "kv_transfer_params": (None,),
    "length_penalty": (None, 1, 1.0),
    "logits_processors": (None, []),
    "lora_path": (None,),
    "mm_processor_kwargs": (None, {}),
    "modalities": (None, ["text"]),
    "moderation": (None,),
    "no_stop_trim": (None, False),
    "prediction": (None,),
    "priority": (None, 0),
    "prompt_logprobs": (None,),
    "return_hidden_states": (None, False),
    "return_token_ids": (None, False),
    "return_tokens_as_token_ids": (None, False),
    "separate_reasoning": (None, True),
    "service_tier": (None, "auto", "default"),
    "skip_special_tokens": (None, True),
    "spaces_between_special_tokens": (None, True, False),
    "store": (None, False),
    "stream_reasoning": (None, True),
    "truncate_prompt_tokens": (None,),
    "use_beam_search": (None, False),
    "verbosity": (None, "medium"),
    "web_search_options": (None,),
}
"""Known to clients of OpenAI, vLLM and SGLang, and not served here."""

HARMLESS = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "safety_identifier",
        "user",
    }
)
"""Fields that do not change what is generated: labels, and hints about caches."""


class TextPart(Wire, extra="ignore"):
    type: Literal["text"]
    text: str


class RefusalPart(Wire, extra="ignore"):
    """Of an assistant's message that refused."""

    type: Literal["refusal"]
    refusal: str


class OtherPart(Wire, extra="allow"):
    """An image, a sound, a file: known to be one, and refused by name."""

    type: str


Part = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[RefusalPart, Tag("refusal")]
    | Annotated[OtherPart, Tag("other")],
    Discriminator(kind_among("text", "refusal")),
]


class CalledFunction(Wire, extra="ignore"):
    name: str
    arguments: str


class ToolCall(Wire, extra="ignore"):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Wire, extra="ignore"):
    """A message of the conversation.

    What is not declared is ignored, here and in its parts, as OpenAI does: clients leave notes of
    their own in messages that they send back (``provider_specific_fields``, ``cache_control``).
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[Part], Field(fail_fast=True)] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    # An answer that the SDK sends back as history carries these, with nothing in them.
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None


class FunctionDefinition(Wire):
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Wire):
    type: Literal["function"]
    function: FunctionDefinition


class ToolName(Wire):
    name: str


class NamedTool(Wire):
    type: Literal["function"]
    function: ToolName


class AllowedTools(Wire):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(min_length=1)]


class AllowedToolsChoice(Wire):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoice = Literal["none", "auto", "required"] | NamedTool | AllowedToolsChoice


class StreamOptions(Wire):
    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: Literal[False] = False
    """Padding against an observer of encrypted lengths is never sent."""


class ChatCompletionRequest(SamplingFields, ConstraintFields):
    """The fields this server acts on; None means the default, as OpenAI takes null."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        None
    )
    chat_template_kwargs: dict[str, Any] | None = None
    """Extension: variables of the chat template, of which a few are passed on."""
