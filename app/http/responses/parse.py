"""``/v1/responses``: from JSON (OpenAI API reference, with extensions) to a generation request and
its renderer; routes for stored responses.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from pydantic_core import to_json

from app.answer.images import ImageSource, without_images
from app.answer.prompt import Conversation
from app.answer.tools import FunctionTool, ToolUse, custom_arguments
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidRequest
from app.core.specs import Grammar, Regex
from app.core.verbatim import Passage
from app.http.config import ApiConfig
from app.http.endpoint import AnswerCall, Api, api_of, endpoint
from app.http.errors import NotKept
from app.http.files import page, paging
from app.http.keys import owner_of
from app.http.models import ServedModel
from app.http.openapi import GENERATES, Deleted, Page, describe
from app.http.requests.constraints import ExtensionFields, JsonSchemaResponse, ResponseFormat
from app.http.requests.fields import GenerationFields, answer_call, token_limit
from app.http.requests.messages import (
    Detail,
    ImagePart,
    ImageReader,
    ImageRules,
    RefusalPart,
    TemplateMessages,
    TextPart,
    called_arguments,
    check_message_count,
    file_not_kept,
    joined_text,
    source_of_url,
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
    Definition,
    FunctionDefinition,
    InputGrammar,
    function_tools,
    leave_out_others,
    tool_use,
)
from app.http.requests.unsupported import NO_EFFECT, RESPONSES, left_out, refused
from app.http.requests.wire import (
    Body,
    ByType,
    Count,
    Ignored,
    Metadata,
    Name,
    Other,
    TokenLimit,
    Unsupported,
    Wire,
    invalid,
    missing,
)
from app.http.responses.kept import Conversations, Resumed, not_kept
from app.http.responses.write import (
    CountedInput,
    InputItem,
    Namespaces,
    ResponseEvent,
    ResponseObject,
    responses_renderer,
)
from app.serving.admission import Ticket
from app.serving.kept_responses import KeptResponse, ResponseStore


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
            raise file_not_kept(f"{param}.file_id")
        if self.image_url is None:
            raise missing(f"{param}.image_url")
        return source_of_url(self.image_url, self.detail, param, f"{param}.image_url", rules)


Part = Annotated[InputText | InputImage | OutputText | RefusalPart | Other, ByType()]

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
    """Namespace of the tool, if it has one."""


class FunctionCall(_Call):
    type: Literal["function_call"]
    name: str
    arguments: str
    async_: Literal[False] | None = Field(default=None, alias="async")


class CallOutput(_Call):
    type: Literal["function_call_output", "custom_tool_call_output"]
    output: str | Annotated[list[Part], Field(fail_fast=True)]
    name: str | None = None


class CustomCallItem(_Call):
    type: Literal["custom_tool_call"]
    name: str
    input: str
    async_: Literal[False] | None = Field(default=None, alias="async")


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
    MessageItem | FunctionCall | CustomCallItem | CallOutput | Reasoning | Other,
    ByType("message"),
]


class TextConfig(Wire):
    unsupported: ClassVar[Mapping[str, Unsupported]] = {"verbosity": left_out("medium")}

    format: ResponseFormat | None = None


class _ToolParam(Wire):
    """Tool options of OpenAI's newer models; only values without effect are accepted."""

    unsupported: ClassVar[Mapping[str, Unsupported]] = {"defer_loading": left_out(False)}
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


InnerTool = Annotated[FunctionToolParam | ResponsesCustomTool | Other, ByType()]


class Namespace(Wire):
    """Tools under one name: those of an MCP server, as Codex sends them."""

    type: Literal["namespace"]
    name: Name
    description: str | None = None
    tools: Annotated[list[InnerTool], Field(max_length=128, fail_fast=True)]


Tool = Annotated[FunctionToolParam | ResponsesCustomTool | Namespace | Other, ByType()]


class ResponsesNamedTool(Wire):
    type: Literal["function", "custom", "namespace"]
    """``namespace``, only in ``allowed_tools``, stands for all of its tools."""
    name: str
    namespace: str | None = None


class ResponsesAllowedTools(Wire):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[ResponsesNamedTool], Field(min_length=1)]


AnyToolChoice = (
    Literal["none", "auto", "required"]
    | Annotated[ResponsesNamedTool | ResponsesAllowedTools | Other, ByType(without=("namespace",))]
)


class ReasoningOptions(ReasoningFields):
    unsupported: ClassVar[Mapping[str, Unsupported]] = {
        "context": refused("the model sees exactly the input; leave it out", "auto"),
        "generate_summary": left_out("auto", "none"),
        "mode": refused("leave it out", "standard"),
        "summary": left_out("auto", "none"),
    }
    """Summaries are not supported: the reasoning itself is shown."""


_MOST_TOOLS = 1024
"""Maximum tools of a request: a constraint of several thousand compiles for seconds."""

_ITEM = re.compile(r"input\[(\d+)\]")

ClientId = Annotated[str, Field(max_length=1024)]


class ConversationFields(Body):
    """The fields that determine the prompt."""

    unsupported = RESPONSES
    no_effect = NO_EFFECT

    model: str | None = None
    input: str | Annotated[list[Item], Field(min_length=1, fail_fast=True)]
    """May be left out where a ``previous_response_id`` is given."""
    previous_response_id: str | None = None
    """A stored response, whose input and output come before ``input``."""
    instructions: str | None = None
    text: TextConfig | None = None
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None
    tool_choice: AnyToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    """Extension: variables of the chat template."""
    thinking: ThinkingSwitch | None = None
    """As in chat completions; ``reasoning`` has more options."""
    schema_in_prompt: SchemaInPrompt | None = None
    """Extension: tell the model the answer's schema; None is the server's default."""

    @classmethod
    def read(cls, body: Mapping[str, Any], ignored: Ignored) -> Self:
        """As ``Body.read``; errors name an item of a joined input by its field in the request."""
        try:
            return super().read(body, ignored)
        except InvalidRequest as error:
            item = _ITEM.match(error.param or "")
            if item is None or not isinstance(body, Resumed):
                raise
            param, field = item[0], body.params[int(item[1])]
            message = str(error).replace(param, field, 1)
            raise InvalidRequest(message, param=f"{field}{item.string[item.end() :]}") from None


class ResponsesRequest(ConversationFields, GenerationFields, ExtensionFields):
    """The fields this server acts on or gives back; None means the default."""

    model: str
    store: bool | None = None
    """False: the response is not stored."""
    max_output_tokens: TokenLimit | None = None
    max_tool_calls: Count | None = None
    """Limit for calls that a server makes itself; this server makes none."""
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: Annotated[list[str], Field(max_length=32)] | None = None
    metadata: Metadata | None = None
    user: ClientId | None = None
    safety_identifier: ClientId | None = None
    prompt_cache_key: ClientId | None = None


LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"
"""Option for reasoning that clients can send back; no effect, since it is never encrypted."""

_OF_OTHERS = frozenset(
    [
        *("file_search_call", "web_search_call", "computer_call", "computer_call_output"),
        *("image_generation_call", "code_interpreter_call", "local_shell_call"),
        *("local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call"),
        *("apply_patch_call_output", "mcp_call", "mcp_list_tools", "mcp_approval_request"),
        *("mcp_approval_response", "tool_search_call", "tool_search_output", "compaction"),
        *("compaction_summary", "compaction_trigger", "additional_tools", "ghost_snapshot"),
        *("configuration_update", "program", "program_output"),
    ]
)
"""Items in histories from another server, for tools that it ran itself."""


def responses_call(body: Mapping[str, Any], ignored: Ignored, api: Api) -> AnswerCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire, config = ResponsesRequest.read(body, ignored), api.config
    model = api.models.find(wire.model)
    for number, value in enumerate(wire.include or ()):
        if value not in (LOGPROBS, ENCRYPTED):
            reason = f"include takes {LOGPROBS!r} and {ENCRYPTED!r}, not {value!r}"
            ignored.leave_out(f"include[{number}]", reason, name=f"include[]={value}")
    keep = None
    if isinstance(body, Resumed) and wire.store is not False:
        keep = body.keep
    elif wire.store:
        ignored.leave_out("store", "store: this server stores no responses; leave it out")
    content = _, spec = api.constraints.read(wire, read_format(wire), ignored, "text.format")
    conversation, tools, namespaces = read_conversation(wire, body, ignored, config, spec)
    # Clients set either of the two (langchain-openai sends top_logprobs alone).
    logprobs = LOGPROBS in (wire.include or ()) or bool(wire.top_logprobs)
    return answer_call(
        wire,
        model,
        [conversation],
        content,
        token_limit(wire, "max_output_tokens"),
        partial(
            responses_renderer,
            settings=_settings(wire, model, store=keep is not None),
            stream=bool(wire.stream),
            vocabulary=api.vocabulary if logprobs else None,
            namespaces=namespaces,
        ),
        prompt="input",
        tools=_tool_use(wire, tools, namespaces, config),
        logprobs=(wire.top_logprobs or 0) if logprobs else None,
        keep=keep,
    )


def _settings(wire: ResponsesRequest, model: ServedModel, *, store: bool) -> dict[str, Any]:
    """The settings of its request that a response repeats, defaults included."""
    choice = wire.tool_choice
    return {
        "model": model.id,
        "output": [],
        "usage": None,
        "store": store,
        "background": False,
        "instructions": wire.instructions,
        "max_output_tokens": wire.max_output_tokens,
        "max_tool_calls": wire.max_tool_calls,
        "metadata": wire.metadata or {},
        "parallel_tool_calls": wire.parallel_tool_calls is not False,
        "previous_response_id": wire.previous_response_id,
        "prompt_cache_key": wire.prompt_cache_key,
        "reasoning": {"effort": wire.reasoning.effort if wire.reasoning else None, "summary": None},
        "safety_identifier": wire.safety_identifier,
        "temperature": 1.0 if wire.temperature is None else wire.temperature,
        "text": {"format": _format(wire), "verbosity": "medium"},
        "tool_choice": (
            choice or "auto"
            if isinstance(choice, str | None)
            else choice.model_dump(exclude_none=True)
        ),
        "tools": [_tool(tool) for tool in wire.tools or () if not isinstance(tool, Other)],
        "top_logprobs": wire.top_logprobs or 0,
        "top_p": 1.0 if wire.top_p is None else wire.top_p,
        "truncation": "disabled",
        "user": wire.user,
    }


def _format(wire: ResponsesRequest) -> dict[str, Any]:
    asked = wire.text.format if wire.text else None
    if asked is None:
        return {"type": "text"}
    shown = asked.model_dump(by_alias=True, exclude_none=True)
    if isinstance(asked, JsonSchemaResponse) and asked.inner is not None:
        del shown["json_schema" if asked.json_schema else "schema"]
        shown |= asked.inner.model_dump(by_alias=True, exclude_none=True)
        shown["strict"] = asked.inner.strict is not False
    return shown


def _tool(tool: FunctionToolParam | ResponsesCustomTool | Namespace) -> dict[str, Any]:
    shown = {"type": tool.type, "name": tool.name, "description": tool.description}
    match tool:
        case Namespace(description=description, tools=tools):
            inner = [_tool(each) for each in tools if not isinstance(each, Other)]
            return shown | {"description": description or "", "tools": inner}
        case ResponsesCustomTool(format=format):
            return shown | {"format": format.model_dump() if format else {"type": "text"}}
    return shown | {"parameters": tool.parameters, "strict": tool.strict is not False}


def read_conversation(
    wire: ConversationFields,
    body: Mapping[str, Any],
    ignored: Ignored,
    config: ApiConfig,
    content: ConstraintSpec | None,
) -> tuple[Conversation, list[FunctionTool], Namespaces]:
    """The conversation of the prompt, all tools of the request, and the tools' namespaces.

    ``wire`` was read from ``body``. Raises ``InvalidRequest``.
    """
    if wire.previous_response_id is not None and not isinstance(body, Resumed):
        reason = "this server stores no responses; send the conversation in input"
        raise invalid("previous_response_id", reason)
    if not isinstance(wire.input, str):
        check_message_count(wire.input, config.max_messages, "items", param="input")
    definitions: list[tuple[str, Definition]] = []
    namespaces: Namespaces = {}
    leave_out_others(wire.tools, ignored)
    for number, tool in enumerate(wire.tools or ()):
        param = f"tools[{number}]"
        if isinstance(tool, Namespace):
            leave_out_others(tool.tools, ignored, f"{param}.tools")
            for index, inner in enumerate(tool.tools):
                if not isinstance(inner, Other):
                    name = _qualified(tool.name, inner.name)
                    namespaces[name] = tool.name, inner.name
                    shown = inner.model_copy(update={"name": name})
                    definitions.append((f"{param}.tools[{index}]", shown))
        elif not isinstance(tool, Other):
            definitions.append((param, tool))
    if (count := len(definitions)) > _MOST_TOOLS:
        reason = f"there are {count}, with those in namespaces, and the limit is {_MOST_TOOLS}"
        raise invalid("tools", reason)
    tools = function_tools(definitions)
    use, variables = asked_reasoning(with_thinking(wire.reasoning, wire.thinking), config)
    images = ImageReader(config.images, "input_text", "input_image")
    messages, passages = _template_messages(wire, body, images, ignored)
    format = wire.text.format if wire.text else None
    conversation = Conversation(
        messages,
        () if wire.tool_choice == "none" else tools,
        template_options(wire.chat_template_kwargs, config, ignored) | variables,
        passages,
        use,
        schema_prompt(wire.schema_in_prompt, content, config, format),
        images.sources,
    )
    return conversation, tools, namespaces


def _qualified(namespace: str | None, name: str) -> str:
    """The model's name for a tool: ``mcp__files__read`` for ``read`` in ``mcp__files``."""
    if namespace is None:
        return name
    return f"{namespace}{name}" if namespace.endswith("_") else f"{namespace}__{name}"


def read_format(wire: ConversationFields) -> ResponseFormat | None:
    """The field ``text.format``. Raises ``InvalidRequest`` for a schema without a name."""
    format = wire.text.format if wire.text else None
    if isinstance(format, JsonSchemaResponse) and format.inner and format.inner.name is None:
        raise missing("text.format.name")
    return format


def _tool_use(
    wire: ConversationFields, tools: list[FunctionTool], namespaces: Namespaces, config: ApiConfig
) -> ToolUse | None:
    once = wire.parallel_tool_calls is False

    def names(chosen: Sequence[ResponsesNamedTool]) -> set[str]:
        """The model's names for ``chosen``; a tool in a namespace has its inner name as well,
        unless that is another tool's own."""
        spaces, named = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for name, (space, inner) in namespaces.items():
            spaces[space].add(name)
            named[inner].add(name)
        named |= {tool.name: {tool.name} for tool in tools}
        found: set[str] = set()
        for tool in chosen:
            name = _qualified(tool.namespace, tool.name)
            found |= (spaces if tool.type == "namespace" else named).get(name, {name})
        return found

    match wire.tool_choice:
        case ResponsesNamedTool() as tool:
            return tool_use(tools, config, "required", names([tool]), once=True)
        case ResponsesAllowedTools(mode=mode, tools=chosen):
            return tool_use(tools, config, mode, names(chosen), once=once)
        case Other(type=type):
            raise InvalidRequest(
                f"tool_choice of type {type!r} is not supported; use none, auto, required, "
                "function, custom or allowed_tools",
                param="tool_choice.type",
            )
        case mode:
            return tool_use(tools, config, mode or "auto", once=once)


def _template_messages(
    wire: ConversationFields, body: Mapping[str, Any], images: ImageReader, ignored: Ignored
) -> tuple[list[dict[str, Any]], list[Passage]]:
    """The messages for the chat template, and their texts under the names of this API.

    ``images`` collects the images. Raises ``InvalidRequest`` that names the item.
    """
    reader = _ItemReader(images, ignored)
    if isinstance(wire.input, str):
        reader.add(MessageItem(role="user", content=wire.input), "input")
    else:
        for number, item in enumerate(wire.input):
            param = body.params[number] if isinstance(body, Resumed) else f"input[{number}]"
            reader.add(item, param)
    messages, passages = reader.joined(), reader.passages
    if not (instructions := wire.instructions):
        return messages, passages
    passages = [Passage("instructions", instructions, by_user=False), *passages]
    if messages and messages[0]["role"] == "system":
        # Many templates take one such message alone, and clients send both (pydantic-ai does).
        first, *messages = messages
        instructions = f"{instructions}\n\n{first['content']}"
    return [{"role": "system", "content": instructions}, *messages], passages


class _ItemReader(TemplateMessages):
    """Merges adjacent items of the assistant into the one message that they once were::

    reasoning  message  function_call  function_call  |  function_call_output  |  message
    """

    def add(self, item: Item, param: str) -> None:
        match item:
            case Reasoning():
                self._add_reasoning(item, param)
            case MessageItem(role="assistant"):
                text = self._text(item.content, f"{param}.content", role="assistant")
                self.passages.append(Passage(param, text, by_user=False))
                self._open_answer()["content"] = text
            case FunctionCall(arguments=text):
                name = _qualified(item.namespace, item.name)
                self._call(item.call_id, name, called_arguments(text))
            case CustomCallItem(input=text):
                name = _qualified(item.namespace, item.name)
                self._call(item.call_id, name, custom_arguments(text))
            case MessageItem(role=role):
                imageless = None if role == "user" else role
                text = self._text(item.content, f"{param}.content", role=imageless)
                self.passages.append(Passage(param, without_images(text), by_user=role == "user"))
                self.messages.append({"role": template_role(role), "content": text})
            case CallOutput(call_id=id):
                lacking = f"{param}: no call before this item has the call_id"
                self._check_called(id, lacking, f"{param}.call_id")
                text = self._text(item.output, f"{param}.output")
                self.passages.append(Passage(param, without_images(text), by_user=False))
                self._result(id, text)
            case Other(type=type):
                self._leave_out(type, param)

    def _text(self, content: str | Sequence[Part], param: str, role: str | None = None) -> str:
        return joined_text(content, param, self._images, role=role)

    def _open_answer(self) -> dict[str, Any]:
        """The assistant's last message if it has only reasoning, or a new one."""
        answer = self._open("assistant")
        if answer["content"] or "tool_calls" in answer:
            self.messages.append({"role": "assistant", "content": None})
        return self.messages[-1]

    def _add_reasoning(self, item: Reasoning, param: str) -> None:
        text = "\n".join(part.text for part in item.content or item.summary or [])
        if text:
            answer = self._open_answer()
            # An answer that was cut while it reasoned has nothing else.
            answer["content"] = answer["content"] or ""
            self._think(answer, text)
        elif item.encrypted_content:
            field = f"{param}.encrypted_content"
            self._ignored.leave_out(field, f"{field} cannot be read: another server wrote it")

    def _leave_out(self, type: str, param: str) -> None:
        """Ignore an item of another server. Raises ``InvalidRequest`` for unknown types."""
        reason = (
            f"items of type {type!r} are not supported; use message, reasoning, "
            "function_call, custom_tool_call and their outputs"
        )
        if type == "item_reference":
            reason = (
                "item_reference is not supported because this server stores no responses; send "
                "the item itself (clients do this with store: false)"
            )
        if type not in _OF_OTHERS:
            raise invalid(param, reason)
        self._ignored.leave_out(f"{param}.type", f"{param}: {reason}", name=f"input[].type={type}")


PATH = "/v1/responses"
COUNT = f"{PATH}/input_tokens"
_ONE = f"{PATH}/{{response_id}}"

_MOST_LISTED = 100


router = APIRouter()


async def _resume(body: dict[str, Any], request: Request) -> tuple[Mapping[str, Any], int]:
    store = api_of(request).responses
    return (body, 0) if store is None else await _conversations(store, request).resume(body)


def _conversations(store: ResponseStore, request: Request) -> Conversations:
    return Conversations(store, owner_of(request.scope), api_of(request).config.max_body_bytes)


def _count_call(body: Mapping[str, Any], ignored: Ignored, api: Api) -> Conversation:
    wire = ConversationFields.read(body, ignored)
    api.models.find(wire.model)
    content = api.constraints.response_format(read_format(wire), ignored, "text.format")
    return read_conversation(wire, body, ignored, api.config, content)[0]


async def _count(prompt: Conversation, ticket: Ticket, api: Api) -> dict[str, Any]:
    tokens = await api.service.tokenize(prompt, ticket)
    return {"object": "response.input_tokens", "input_tokens": len(tokens)}


router.post(
    PATH,
    openapi_extra=describe(
        "Answer a list of items (Responses API)",
        ResponseObject,
        event=ResponseEvent,
        bodies=[ResponsesRequest],
        errors=GENERATES,
    ),
)(endpoint(PATH, responses_call, resume=_resume))
router.post(
    COUNT,
    openapi_extra=describe(
        "Count the tokens of a response's prompt",
        CountedInput,
        bodies=[ConversationFields],
        errors=(400, 404, 413, 429, 504),
    ),
)(endpoint(COUNT, _count_call, _count, resume=_resume))


async def _kept(response_id: str, request: Request) -> tuple[ResponseStore, KeptResponse]:
    store = api_of(request).responses
    found = None if store is None else await store.find(owner_of(request.scope), response_id)
    if store is None or found is None:
        raise NotKept(not_kept(response_id), param="response_id")
    return store, found


@router.get(_ONE, openapi_extra=describe("Get a response", ResponseObject, errors=[400, 404]))
async def retrieve(response_id: str, request: Request) -> Response:
    if request.query_params.get("stream") == "true":
        raise InvalidRequest(
            "stored responses cannot be streamed; leave stream out", param="stream"
        )
    _, found = await _kept(response_id, request)
    return Response(found.response, media_type="application/json")


@router.delete(_ONE, openapi_extra=describe("Delete a stored response", Deleted, errors=[404]))
async def delete(response_id: str, request: Request) -> Response:
    store, _ = await _kept(response_id, request)
    await store.delete(owner_of(request.scope), response_id)
    return JSONResponse({"id": response_id, "object": "response", "deleted": True})


@router.post(f"{_ONE}/cancel", openapi_extra=describe("Always refused", errors=[400, 404]))
async def cancel(response_id: str, request: Request) -> Response:
    await _kept(response_id, request)
    raise InvalidRequest("background responses are not supported; close the connection")


@router.get(
    f"{_ONE}/input_items",
    openapi_extra=describe(
        "List the input items",
        Page[InputItem],
        query=("limit", "after", "order"),
        errors=[400, 404, 413],
    ),
)
async def input_items(response_id: str, request: Request) -> Response:
    """``order`` (desc, asc), ``limit`` and ``after``, an item's id, as OpenAI has them."""
    store, found = await _kept(response_id, request)
    items = await _conversations(store, request).input_of(found)
    after, limit, order = paging(request, _MOST_LISTED, 20)
    if order == "desc":
        items = items[::-1]
    if after is not None:
        names = [each["id"] for each in items]
        if after not in names:
            raise InvalidRequest(f"after: there is no item {after[:64]!r}", param="after")
        items = items[names.index(after) + 1 :]
    return Response(to_json(page(items, limit)), media_type="application/json")
