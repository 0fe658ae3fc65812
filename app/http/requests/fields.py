"""Request fields of several endpoints: sampling, the end of answers, and streaming."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from app.answer.prompt import Prompt
from app.answer.tools import ToolUse
from app.core.composite import with_schemas
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidRequest
from app.core.request import GenerationOptions, SamplingParams, ServiceTier
from app.core.specs import OnUnsupported
from app.http.endpoint import AnswerCall, Renderer
from app.http.models import ServedModel
from app.http.requests.messages import TextPart
from app.http.requests.unsupported import left_out
from app.http.requests.wire import Body, TokenLimit, Unsupported, Wire
from app.serving.generation import Generation

_LONGEST_STOP = 1024
"""Characters of a stop string, which is compared with the end of the answer at every token."""

_TIERS = {"flex": ServiceTier.FLEX, "priority": ServiceTier.PRIORITY}

TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class StreamOptions(Wire):
    unsupported: ClassVar[Mapping[str, Unsupported]] = {"include_obfuscation": left_out(False)}
    """Padding against traffic analysis, which this server never sends."""

    include_usage: bool = False
    """Send a chunk with the usage after the last one; Responses and Messages always report it."""
    continuous_usage_stats: bool = False
    fields: bool = False
    """Extension: report each value of a JSON answer once complete; see docs/requests.md."""
    origins: bool = False
    """Extension: report the origin of each token; see docs/requests.md."""


class UsageOptions(Wire):
    """OpenRouter's field ``usage``."""

    include: bool = False


class PredictionPart(TextPart):
    type: Literal["text"] = "text"


class Prediction(Wire):
    type: Literal["content"]
    content: str | list[PredictionPart]

    @property
    def text(self) -> str:
        content = self.content
        return content if isinstance(content, str) else "".join(part.text for part in content)


class GenerationFields(Body):
    """OpenAI's fields, and those of vLLM, SGLang, llama.cpp and OpenRouter; None: the default."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    usage: UsageOptions | None = None
    """As ``stream_options.include_usage``."""
    n_predict: TokenLimit | None = None
    """Another name of ``max_tokens``."""
    prediction: Prediction | None = None
    """The expected answer, from which drafts are taken."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = None
    repeat_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = None
    """Another name of ``repetition_penalty``."""
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: (
        Annotated[
            dict[
                Annotated[int, Field(ge=0, lt=2**31, strict=False)],
                Annotated[float, Field(ge=-100, le=100)],
            ],
            Field(max_length=1024),
        ]
        | None
    ) = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    leap: bool | None = None
    """Extension: false decodes forced text token by token."""
    draft: bool | None = None
    """Extension: false disables drafts. Answers are the same either way."""
    on_budget: Literal["finish", "truncate"] | None = None
    """Extension: near max_tokens, finish the answer within it or cut it as OpenAI does."""
    on_unsupported: OnUnsupported | None = None
    """Extension: refuse a schema with a keyword that cannot be enforced, or relax the keyword."""
    timeout: Annotated[float, Field(gt=0)] | None = None
    """Extension: seconds until the last token, after which the request ends with an error."""
    confidence: bool | None = None
    """Extension: report the confidence in each value; see docs/confidence.md."""
    spans: bool | None = None
    """Extension: report the places of x-verbatim values in the prompt; see docs/verbatim.md."""
    service_tier: (
        Literal["auto", "default", "standard_only", "scale", "flex", "priority"] | None
    ) = None
    """Priority class: flex yields to others; priority needs an API key that may ask for it."""
    choices: Literal["tokens", "exact"] | None = None
    """Extension: draw values of a finite set token by token, or as wholes by their probability."""


def answer_call(
    fields: GenerationFields,
    model: ServedModel,
    prompts: Sequence[Prompt],
    content: tuple[str, ConstraintSpec | None],
    limit: tuple[str, int | None],
    renderer: Callable[[Generation], Renderer],
    *,
    prompt: str = "messages",
    tools: ToolUse | None = None,
    n: int = 1,
    logprobs: int | None = None,
    prompt_logprobs: int | None = None,
    keep: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None,
) -> AnswerCall:
    """The call that ``fields`` ask for, with its ``renderer``. Raises ``InvalidRequest``.

    ``content``: see ``ConstraintReader.read``; ``limit``: see ``token_limit``; ``prompt``: the
    field that the prompts are made of; ``logprobs``: how many alternatives to report beside each
    token; None reports nothing.
    """
    if fields.stream_options is not None and not fields.stream:
        raise InvalidRequest("stream_options requires stream: true", param="stream_options")
    confidence = bool(fields.confidence)
    name, max_tokens = limit
    # For OpenAI top_p = 0 means only the likeliest token; an empty nucleus would keep none.
    only_likeliest = fields.top_p == 0
    sampling = SamplingParams(
        temperature=1.0 if fields.temperature is None else fields.temperature,
        top_p=fields.top_p or 1.0,
        top_k=1 if only_likeliest else max(fields.top_k or 0, 0),
        min_p=fields.min_p or 0.0,
        repetition_penalty=_one_of(fields, "repetition_penalty", "repeat_penalty")[1] or 1.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        presence_penalty=fields.presence_penalty or 0.0,
        logit_bias=fields.logit_bias or {},
        logprobs=0 if logprobs is None and confidence else logprobs,
    )
    stop = [fields.stop] if isinstance(fields.stop, str) else fields.stop or []
    stop_name = type(fields).model_fields["stop"].alias or "stop"
    if "" in stop:
        raise InvalidRequest(f"{stop_name} has an empty string", param=stop_name)
    if any(len(string) > _LONGEST_STOP for string in stop):
        raise InvalidRequest(
            f"{stop_name} has a string of more than {_LONGEST_STOP} characters", param=stop_name
        )
    options = GenerationOptions(
        sampling=sampling,
        n=n,
        max_tokens=max_tokens,
        min_tokens=fields.min_tokens or 0,
        stop=[string.encode() for string in stop],
        stop_token_ids=tuple(fields.stop_token_ids or ()),
        ignore_eos=bool(fields.ignore_eos),
        seed=fields.seed,
        on_budget=fields.on_budget or "finish",
        confidence=confidence,
        fields=stream_options(fields).fields,
        prompt_logprobs=prompt_logprobs,
        origins=stream_options(fields).origins,
        spans=bool(fields.spans),
        choices=fields.choices,
        leap=fields.leap is not False,
        draft=fields.draft is not False,
        timeout=fields.timeout,
        tier=_TIERS.get(fields.service_tier or "auto", ServiceTier.DEFAULT),
        prediction=b"" if fields.prediction is None else fields.prediction.text.encode(),
    )
    param, spec = content
    asked = fields.on_unsupported
    if asked is not None and spec is not None:
        spec = with_schemas(spec, lambda schema: replace(schema, relax=asked == "relax"))
    return AnswerCall(
        prompts=prompts,
        options=options,
        adapter=model.adapter,
        content=spec,
        tools=tools and replace(tools, on_unsupported=fields.on_unsupported),
        names={
            "prompt": prompt,
            "max_tokens": name,
            "constraint": "tools" if spec is None else param,
        },
        renderer=renderer,
        stream=bool(fields.stream),
        logprobs=logprobs is not None,
        keep=keep,
    )


ServedTier = Literal["default", "flex", "priority"]


def served_tier(generation: Generation) -> ServedTier:
    """The tier of an answer in OpenAI's words, which call a line of a batch default."""
    shown: dict[ServiceTier, ServedTier] = {
        ServiceTier.FLEX: "flex",
        ServiceTier.PRIORITY: "priority",
    }
    return shown.get(generation.tier, "default")


def stream_options(fields: GenerationFields) -> StreamOptions:
    """The stream options of a request, ``usage.include`` merged into them."""
    options = fields.stream_options or StreamOptions()
    if fields.usage is None or not fields.usage.include:
        return options
    return options.model_copy(update={"include_usage": True})


def token_limit(
    fields: GenerationFields, *names: str, default: int | None = None
) -> tuple[str, int | None]:
    """The field that limits the answer, and the maximum number of tokens; None: no limit.

    ``names``: the API's names of it; ``default``: if none is given. Raises ``InvalidRequest``.
    """
    name, value = _one_of(fields, *names, "n_predict")
    return name, default if value is None else None if value < 0 else value


def _one_of(fields: GenerationFields, *names: str) -> tuple[str, Any]:
    """The first of a field's ``names`` that is given, and its value; None: none is given.

    Raises ``InvalidRequest`` if two differ.
    """
    given = {name: value for name in names if (value := getattr(fields, name)) is not None}
    if len(set(given.values())) > 1:
        first, second, *_ = given
        raise InvalidRequest(f"{first} and {second} differ; send only one of them", param=first)
    return next(iter(given.items()), (names[0], None))
