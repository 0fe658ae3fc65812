"""The shapes of answers, for ``/openapi.json`` alone: answers are written as bytes elsewhere.

Every field is there always, unless it has a default here. Tests compare answers with them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """Part of an answer. It has no other fields."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class ErrorObject(Shape):
    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    param: str | None
    """The field at fault."""
    code: str | None


class ErrorEnvelope(Shape):
    error: ErrorObject


class ModelObject(Shape):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(Shape):
    object: Literal["list"]
    data: list[ModelObject]


class Status(Shape):
    status: str


class Version(Shape):
    version: str


class PromptTokensDetails(Shape):
    cached_tokens: int
    audio_tokens: int


class CompletionTokensDetails(Shape):
    reasoning_tokens: int
    audio_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    leapt_tokens: int
    """Forced by the constraint, and never decoded."""
    drafted_tokens: int
    """Guessed and confirmed."""
    forward_passes: int


class Usage(Shape):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class TopLogprob(Shape):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Shape):
    content: list[TokenLogprob]
    refusal: None


class AnsweredFunction(Shape):
    name: str
    arguments: str
    """JSON that is valid against the tool's parameters."""


class AnsweredCall(Shape):
    id: str
    type: Literal["function"]
    function: AnsweredFunction


class AnsweredMessage(Shape):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    annotations: list[Any] = Field(max_length=0)
    reasoning_content: str = ""
    tool_calls: list[AnsweredCall] = Field(default=[], min_length=1)


class ChatChoice(Shape):
    index: int
    message: AnsweredMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class ChatCompletion(Shape):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    service_tier: Literal["default"]
    choices: list[ChatChoice]
    usage: Usage


class FunctionDelta(Shape):
    name: str = ""
    arguments: str


class CallDelta(Shape):
    """``id`` and the function's name come once."""

    index: int
    id: str = ""
    type: Literal["function"] = "function"
    function: FunctionDelta


class Delta(Shape):
    role: Literal["assistant"] = "assistant"
    content: str = ""
    refusal: None = None
    reasoning_content: str = ""
    tool_calls: list[CallDelta] = []


class ChunkChoice(Shape):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"] | None


class ChatCompletionChunk(Shape):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    service_tier: Literal["default"]
    choices: list[ChunkChoice]
    usage: Usage | None = None


class CompletionLogprobs(Shape):
    text_offset: list[int]
    token_logprobs: list[float]
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


class CompletionChoice(Shape):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"]


class Completion(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage


class CompletionChunkChoice(Shape):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class CompletionChunk(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChunkChoice]
    usage: Usage | None = None


class ResponsesInputDetails(Shape):
    cached_tokens: int
    cache_write_tokens: int


class ResponsesOutputDetails(Shape):
    reasoning_tokens: int
    leapt_tokens: int
    drafted_tokens: int
    forward_passes: int


class ResponsesUsage(Shape):
    input_tokens: int
    input_tokens_details: ResponsesInputDetails
    output_tokens: int
    output_tokens_details: ResponsesOutputDetails
    total_tokens: int


class OutputItem(BaseModel):
    """A message, a function call, or reasoning; its other fields depend on its type."""

    model_config = ConfigDict(extra="allow")
    id: str
    type: Literal["message", "function_call", "reasoning"]
    status: Literal["completed", "incomplete"] = "completed"


class IncompleteDetails(Shape):
    reason: Literal["max_output_tokens"]


class ResponseObject(BaseModel):
    """Beside these it repeats the settings of its request."""

    model_config = ConfigDict(extra="allow")
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["completed", "incomplete"]
    error: None
    incomplete_details: IncompleteDetails | None
    model: str
    output: list[OutputItem]
    usage: ResponsesUsage


class ResponseEvent(BaseModel):
    """Its other fields depend on its type."""

    model_config = ConfigDict(extra="allow")
    type: str
    sequence_number: int


class Tokenized(Shape):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(Shape):
    prompt: str


class SchemaObject(Shape):
    id: str
    """The same wherever and whenever this schema is registered."""
    object: Literal["schema"]
    created: int
    name: str | None
    strict: bool
    whitespace: str
    schema_: Any = Field(alias="schema")
    explain: dict[str, Any]
    """What ``leapjson explain --json`` says, or ``error`` with the reason why nothing is said."""
