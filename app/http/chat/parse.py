"""``POST /v1/chat/completions``: OpenAI's JSON, with extensions -> generation request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field

from app.answer.images import ImageSource, without_images
from app.answer.prompt import Conversation
from app.answer.tools import FunctionTool, ToolUse, custom_arguments
from app.core.errors import InvalidRequest
from app.core.specs import Grammar, Regex
from app.core.verbatim import Passage
from app.http.chat.write import ChatCompletion, ChatCompletionChunk, chat_renderer
from app.http.config import ApiConfig
from app.http.endpoint import AnswerCall, Api, endpoint
from app.http.openapi import GENERATES, describe
from app.http.requests.constraints import ConstraintFields
from app.http.requests.fields import GenerationFields, answer_call, stream_options, token_limit
from app.http.requests.messages import (
    Detail,
    ImagePart,
    ImageReader,
    ImageRules,
    RefusalPart,
    TextPart,
    called_arguments,
    check_message_count,
    joined_text,
    source_of_url,
    take_prefill,
    template_call,
    template_role,
)
from app.http.requests.prompt import (
    ReasoningFields,
    SchemaInPrompt,
    ThinkingSwitch,
    asked_reasoning,
    schema_prompt,
    template_options,
    with_thinking,
)
from app.http.requests.tools import (
    AnyInput,
    CustomDefinition,
    FunctionDefinition,
    InputGrammar,
    function_tools,
    leave_out_others,
    tool_use,
)
from app.http.requests.unsupported import CHAT, NO_EFFECT
from app.http.requests.wire import (
    Body,
    ByType,
    Count,
    Effort,
    Extensible,
    Ignored,
    Other,
    TokenLimit,
    Wire,
    missing,
)


class ChatText(TextPart):
    allows_extra = True

    type: Literal["text"]


class ChatRefusal(RefusalPart):
    allows_extra = True


class ChatImageUrl(Extensible):
    url: str
    detail: Detail | None = None


class ChatImage(ImagePart):
    type: Literal["image_url"]
    image_url: str | ChatImageUrl
    detail: Detail | None = None
    """Detail of an image whose ``image_url`` is the URL itself."""

    def located(self, param: str, rules: ImageRules) -> ImageSource:
        match self.image_url:
            case ChatImageUrl(url=url, detail=detail):
                return source_of_url(url, detail, param, f"{param}.image_url.url", rules)
            case url:
                return source_of_url(url, self.detail, param, f"{param}.image_url", rules)


Part = Annotated[ChatText | ChatImage | ChatRefusal | Other, ByType()]


class CalledFunction(Extensible):
    name: str
    arguments: str


class ToolCall(Extensible):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class CalledCustom(Extensible):
    name: str
    input: str


class ChatCustomCall(Extensible):
    id: str
    type: Literal["custom"]
    custom: CalledCustom


AnyToolCall = Annotated[ToolCall | ChatCustomCall, ByType("function")]


class ChatMessage(Extensible):
    """A message of the conversation.

    Clients leave notes of their own in messages that they send back
    (``provider_specific_fields``, ``cache_control``), as OpenAI lets them.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[Part], Field(fail_fast=True)] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Annotated[list[AnyToolCall], Field(fail_fast=True)] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    # Empty fields of an answer that the SDK sends back as history.
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None


class ChatFunctionTool(Wire):
    type: Literal["function"]
    function: FunctionDefinition


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


Tool = Annotated[ChatFunctionTool | ChatCustomToolParam | Other, ByType("function")]


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


NamedTool = Annotated[NamedFunction | NamedCustomTool, ByType("function")]


class ChatAllowedTools(Wire):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(min_length=1)]


class AllowedToolsChoice(Wire):
    type: Literal["allowed_tools"]
    allowed_tools: ChatAllowedTools


AnyToolChoice = (
    Literal["none", "auto", "required"]
    | Annotated[NamedFunction | NamedCustomTool | AllowedToolsChoice, Field(discriminator="type")]
)


class ConversationFields(Body):
    """The fields that determine the prompt."""

    model: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)]
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None
    reasoning_effort: Effort | None = None
    reasoning: ReasoningFields | None = None
    include_reasoning: bool | None = None
    """The older form of ``reasoning.exclude``."""
    thinking: ThinkingSwitch | None = None
    """Anthropic's field, which GLM, Kimi and DeepSeek accept in chat completions."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Extension: variables of the chat template."""
    continue_final_message: bool | None = None
    """vLLM's field: the last message, by the assistant, is the beginning of the answer."""
    add_generation_prompt: bool | None = None
    """vLLM's field: false ends the prompt after the messages, without opening an assistant's."""


class ChatCompletionRequest(ConversationFields, GenerationFields, ConstraintFields):
    """The fields this server acts on; None means the default, as OpenAI takes null."""

    unsupported = CHAT
    no_effect = NO_EFFECT

    model: str
    schema_in_prompt: SchemaInPrompt | None = None
    """Extension: tell the model the answer's schema; None is the server's default."""
    tool_choice: AnyToolChoice | None = None
    parallel_tool_calls: bool | None = None
    n: Count | None = None
    max_tokens: TokenLimit | None = None
    max_completion_tokens: TokenLimit | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


PATH = "/v1/chat/completions"


def chat_call(body: Mapping[str, Any], ignored: Ignored, api: Api) -> AnswerCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire, config = ChatCompletionRequest.read(body, ignored), api.config
    model = api.models.find(wire.model)
    if wire.n is not None and wire.n > config.max_n:
        raise InvalidRequest(f"n is {wire.n} and the limit is {config.max_n}", param="n")
    if wire.top_logprobs and not wire.logprobs:
        raise InvalidRequest("top_logprobs requires logprobs: true", param="top_logprobs")
    content = _, spec = api.constraints.read(wire, wire.response_format, ignored)
    limit = token_limit(wire, "max_tokens", "max_completion_tokens")
    show_tools = wire.tool_choice != "none"
    conversation, tools = read_conversation(wire, ignored, config, show_tools=show_tools)
    note = schema_prompt(wire.schema_in_prompt, spec, config, wire.response_format)
    return answer_call(
        wire,
        model,
        [replace(conversation, schema_prompt=note)],
        content,
        limit,
        partial(
            chat_renderer,
            model=model,
            stream=stream_options(wire) if wire.stream else None,
            vocabulary=api.vocabulary if wire.logprobs else None,
            # Clients that send OpenRouter's fields also read its answer field.
            reasoning_names=("reasoning_content",)
            if wire.reasoning is None and wire.include_reasoning is None
            else ("reasoning_content", "reasoning"),
        ),
        tools=_tool_use(wire, tools, config),
        n=wire.n or 1,
        logprobs=(wire.top_logprobs or 0) if wire.logprobs else None,
    )


def read_conversation(
    wire: ConversationFields, ignored: Ignored, config: ApiConfig, *, show_tools: bool = True
) -> tuple[Conversation, list[FunctionTool]]:
    """The conversation of the prompt, and all tools of the request. Raises ``InvalidRequest``."""
    check_message_count(wire.messages, config.max_messages)
    images, called = ImageReader(config.images, "text", "image_url"), set[str]()
    messages = []  # in the chat template's format, with marks for the images
    for number, message in enumerate(wire.messages):
        param = f"messages[{number}]"
        _check(message, param, called)
        called.update(call.id for call in message.tool_calls or ())
        messages.append(_template_message(message, param, images))
    prefill = None
    if wire.continue_final_message:
        if wire.add_generation_prompt:
            raise InvalidRequest(
                "continue_final_message and add_generation_prompt exclude each other; leave one "
                "out",
                param="add_generation_prompt",
            )
        prefill = take_prefill(messages, "continue_final_message")
    leave_out_others(wire.tools, ignored)
    tools = function_tools(
        (
            f"tools[{number}].{tool.type}",
            tool.function if isinstance(tool, ChatFunctionTool) else tool.custom,
        )
        for number, tool in enumerate(wire.tools or ())
        if not isinstance(tool, Other)
    )
    options = template_options(wire.chat_template_kwargs, config, ignored)
    use, variables = asked_reasoning(_reasoning(wire), config, effort=wire.reasoning_effort)
    passages = [
        Passage(
            f"messages[{number}]", without_images(each["content"] or ""), each["role"] == "user"
        )
        for number, each in enumerate(messages)
    ]
    conversation = Conversation(
        messages,
        tools if show_tools else (),
        options | variables,
        passages,
        use,
        images=images.sources,
        prefill=prefill,
        opens=wire.add_generation_prompt is not False or prefill is not None,
    )
    return conversation, tools


def _reasoning(wire: ConversationFields) -> ReasoningFields | None:
    """OpenRouter's fields, old and new, combined with ``thinking`` of other servers."""
    fields = with_thinking(wire.reasoning, wire.thinking)
    if wire.include_reasoning is None:
        return fields
    excluded, fields = not wire.include_reasoning, fields or ReasoningFields()
    if fields.exclude not in (None, excluded):
        raise InvalidRequest(
            "include_reasoning and reasoning.exclude contradict each other; send one of them",
            param="include_reasoning",
        )
    return fields.model_copy(update={"exclude": excluded})


def _tool_use(
    wire: ChatCompletionRequest, tools: list[FunctionTool], config: ApiConfig
) -> ToolUse | None:
    once = wire.parallel_tool_calls is False
    match wire.tool_choice:
        case NamedFunction(name=name) | NamedCustomTool(name=name):
            return tool_use(tools, config, "required", {name}, once=True)
        case AllowedToolsChoice(allowed_tools=allowed):
            names = {each.name for each in allowed.tools}
            return tool_use(tools, config, allowed.mode, names, once=once)
        case mode:
            return tool_use(tools, config, mode or "auto", once=once)


def _check(message: ChatMessage, param: str, called: set[str]) -> None:
    """Check a message's fields against its role. Raises ``InvalidRequest``."""
    assistant = message.role == "assistant"
    if message.content is None and not assistant:
        raise missing(f"{param}.content")
    if message.content is None and not message.tool_calls and message.refusal is None:
        raise InvalidRequest(
            f"{param}: an assistant's message needs content or tool_calls", param=f"{param}.content"
        )
    for field in ("tool_calls", "refusal", "reasoning_content", "reasoning"):
        if not assistant and getattr(message, field):
            raise InvalidRequest(
                f"{param}: only messages of the role 'assistant' have {field}",
                param=f"{param}.{field}",
            )
    if message.role != "tool":
        return
    if message.tool_call_id is None:
        raise missing(f"{param}.tool_call_id")
    if message.tool_call_id not in called:
        raise InvalidRequest(
            f"{param}: no assistant's message before this one has a tool call with the id "
            f"{message.tool_call_id!r}",
            param=f"{param}.tool_call_id",
        )


def _template_message(message: ChatMessage, param: str, images: ImageReader) -> dict[str, Any]:
    content = message.refusal
    if message.content is not None:
        imageless = None if message.role == "user" else message.role
        content = joined_text(message.content, f"{param}.content", images, role=imageless)
    rendered: dict[str, Any] = {"role": template_role(message.role), "content": content}
    for field in ("name", "tool_call_id"):
        value = getattr(message, field)
        if value is not None:
            rendered[field] = value
    reasoning = message.reasoning_content or message.reasoning
    if reasoning:
        rendered["reasoning_content"] = reasoning
    if message.tool_calls:
        rendered["tool_calls"] = [
            template_call(each.id, each.custom.name, custom_arguments(each.custom.input))
            if isinstance(each, ChatCustomCall)
            else template_call(
                each.id, each.function.name, called_arguments(each.function.arguments)
            )
            for each in message.tool_calls
        ]
    return rendered


router = APIRouter()
router.post(
    PATH,
    openapi_extra=describe(
        "Answer a conversation",
        ChatCompletion,
        event=ChatCompletionChunk,
        bodies=[ChatCompletionRequest],
        errors=GENERATES,
    ),
)(endpoint(PATH, chat_call))
