"""What every API reports beside an answer's text: values, log-probabilities, origins, warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import quote

from pydantic import Field
from pydantic_core import to_json

from app.answer.pieces import Confidence, FieldValue, Measurements, PromptSpan, TokenByToken
from app.core.constraint import Vocabulary
from app.core.events import AnswerToken, AnswerUsage, Origins, OriginToken
from app.http.openapi import Shape
from app.serving.generation import Generation


class TokenSources(Shape):
    """Numbers of tokens of answers by their source."""

    leapt_tokens: int
    """Tokens forced by the constraint, and never decoded."""
    drafted_tokens: int
    """Tokens guessed and confirmed (speculation)."""
    held_tokens: int
    """Tokens forced, but sampled, as the next character could still merge with them."""
    forward_passes: int


def token_sources(usage: AnswerUsage) -> dict[str, int]:
    return {name: getattr(usage, name) for name in TokenSources.model_fields}


def measured(piece: Measurements) -> dict[str, Any]:
    """A choice's reports on its values, by field."""
    found: dict[str, Any] = {}
    if piece.confidence is not None:
        found["confidence"] = [_confidence(each) for each in piece.confidence]
    if piece.inexact:
        found["inexact"] = [{**_pointed(each), "what": each.what} for each in piece.inexact]
    if piece.spans is not None:
        found["spans"] = [{**_pointed(each), **_place(each)} for each in piece.spans]
    return found


def _pointed(value: Confidence | TokenByToken | PromptSpan) -> dict[str, Any]:
    call = {} if value.call is None else {"tool_call": value.call}
    return {**call, "pointer": value.pointer}


def _confidence(value: Confidence) -> dict[str, Any]:
    entry = _pointed(value)
    if value.what != "container":
        entry[value.what] = value.which
    entry["probability"] = value.probability
    if value.mass is not None:
        entry["mass"] = value.mass
    if value.alternatives is not None:
        entry["alternatives"] = [
            {each.what: each.which, "probability": each.probability} for each in value.alternatives
        ]
    if value.tokens is not None:
        entry["tokens"] = value.tokens
    if value.span is not None:
        entry["span"] = _place(value.span)
    if value.least_likely is not None:
        least = value.least_likely
        token = least.token.decode(errors="replace")
        entry["least_likely"] = {"token": token, "probability": least.probability}
    return entry


def _place(span: PromptSpan) -> dict[str, Any]:
    return {"part": span.part, "start": span.start, "end": span.end}


class Pointed(Shape):
    """Report on a value of the answer."""

    tool_call: int = 0
    """For a value in the arguments of a call: its number, from 0."""
    pointer: str
    """JSON Pointer (RFC 6901) to the value."""


class PromptPlace(Shape):
    """Place of a value in the prompt; the first one, if there are several."""

    part: str
    """Text of the prompt: ``messages[1]``, ``input``, ``input[0]``."""
    start: int
    """Offset in that text, in characters (Unicode code points)."""
    end: int
    """Offset after the last character."""


class ValueSpan(Pointed, PromptPlace):
    """Place in the prompt of a value of the answer."""


class LeastLikelyToken(Shape):
    token: str
    probability: float


class ConfidenceAlternative(Shape):
    """One of ``value``, ``next``, ``type`` and ``other`` says what it is."""

    value: Any = None
    next: str | int | None = None
    """The next key or index; null: the object or array ends."""
    type: str = ""
    """Type of one of many values, or of one of many keys."""
    other: int = 0
    """Number of the remaining alternatives, which are reported together."""
    probability: float


class ValueConfidence(Pointed):
    """Confidence in a ``value``, or in the ``next`` key, index or end of an object or array."""

    value: Any = None
    next: str | int | None = None
    probability: float
    mass: float = Field(default=0.0)
    alternatives: list[ConfidenceAlternative] = Field(default=[])
    tokens: int = 0
    span: PromptPlace | None = None
    """Place in the prompt of a string with x-verbatim."""
    least_likely: LeastLikelyToken | None = None


class InexactChoice(Pointed):
    """An exact choice that was drawn token by token instead of as a whole."""

    what: Literal["value", "next"]
    """The value itself, or what came next in the object or array."""


class Measured(Shape):
    """A choice's reports on its values; there are none unless they were requested."""

    confidence: list[ValueConfidence] = Field(default=[])
    inexact: list[InexactChoice] = Field(default=[])
    spans: list[ValueSpan] = Field(default=[])


class CompleteValue(Pointed):
    value: Any = None
    """Missing if it is large: its parts have been reported."""


def with_fields(data: bytes, values: Sequence[FieldValue]) -> bytes:
    """``data``, a JSON object, with the member ``fields`` at its end."""
    return b"".join((data[:-1], b',"fields":[', b",".join(map(_complete_value, values)), b"]}"))


def _complete_value(value: FieldValue) -> bytes:
    call = b"" if value.call is None else b'"tool_call":%d,' % value.call
    entry = b'{%b"pointer":%b' % (call, to_json(value.pointer))
    if value.text is None:
        return entry + b"}"
    # Only white space has line breaks, which would end the event's line.
    text = value.text.replace(b"\n", b" ").replace(b"\r", b" ")
    return entry + b',"value":%b}' % text


LOWEST_LOGPROB = -9999.0
"""Log-probability reported for zero, as OpenAI does; JSON has no infinity."""


def finite(logprob: float) -> float:
    return max(logprob, LOWEST_LOGPROB)


def logprob_entries(tokens: Sequence[AnswerToken], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """``logprobs.content`` for tokens that added text; their bytes, joined, are the text."""
    names = vocabulary.token_bytes
    return [
        {
            **named_token(token.data, token.logprob),
            "top_logprobs": [named_token(names[top.token_id], top.logprob) for top in token.top],
        }
        for token in tokens
        if token.data
    ]


def named_token(data: bytes | None, logprob: float) -> dict[str, Any]:
    """A token without bytes of its own (end of sequence, say) has an empty name."""
    return {
        "token": (data or b"").decode(errors="replace"),
        "logprob": finite(logprob),
        "bytes": None if data is None else list(data),
    }


class TopLogprob(Shape):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenOrigin(Shape):
    token: str
    """Text of the token, with U+FFFD for incomplete characters."""
    bytes: list[int]
    """Bytes of the token; joined, they are the answer's text, with marks of reasoning and calls."""
    source: Literal["sampled", "drafted", "held", "leapt"]
    logprob: float | None = None
    """Present if log-probabilities were requested; null: the token was not drawn as it is."""
    top_logprobs: list[TopLogprob] = Field(default=[])


class TokenOrigins(Shape):
    """The tokens of the answer from number ``index`` on, in place of any reported before."""

    index: int
    tokens: list[TokenOrigin]


def origins_entry(origins: Origins, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """``vocabulary`` is given where log-probabilities are asked for."""
    return {
        "index": origins.index,
        "tokens": [_origin(token, vocabulary) for token in origins.tokens],
    }


def merged(before: Origins | None, after: Origins) -> Origins:
    """Two changes of origins as one."""
    if before is None or after.index <= before.index:
        return after
    kept = before.tokens[: after.index - before.index]
    return Origins(before.index, [*kept, *after.tokens])


def _origin(token: OriginToken, vocabulary: Vocabulary | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "token": token.data.decode(errors="replace"),
        "bytes": list(token.data),
        "source": token.source,
    }
    if vocabulary is None:
        return entry
    logprob = token.logprob
    names = vocabulary.token_bytes
    return {
        **entry,
        "logprob": None if logprob is None else finite(logprob),
        "top_logprobs": [named_token(names[top.token_id], top.logprob) for top in token.top],
    }


HEADER = "x-leapjson-relaxed"

_MOST_CHARACTERS = 2_000
"""Maximum size of the header, which proxies limit; the warnings in the body are complete."""


class Warning(Shape):
    """A keyword that was not enforced, because it cannot be (``relaxed``), or that some validators
    interpret differently (``inexact``); or the first string, array or object of a choice that was
    cut short by ``max_tokens`` (``budget_closed``)."""

    code: Literal["relaxed", "inexact", "budget_closed"]
    function: str | None
    """Function whose parameters or arguments are meant; None: the content or its schema."""
    pointer: str
    """JSON Pointer (RFC 6901) to the keyword, or to a subschema of which only the type is enforced;
    for ``budget_closed``, to the value in the answer."""
    keyword: str | None
    satisfied: bool | None
    """Whether the answer satisfies it anyway; None: it was not used, or not checked."""
    message: str
    choice: int | None = None
    """Number of the choice whose value was cut short."""


def relaxed_headers(generation: Generation) -> dict[str, str]:
    """Header with ``FUNCTION#POINTER`` of each relaxed place, percent-encoded, comma-separated."""
    if generation.relaxed is None:
        return {}
    places: list[str] = []
    for each in generation.relaxed.warnings:
        if not each.relaxation.inexact:
            name = f"{each.function or ''}#{each.relaxation.pointer}"
            places.append(quote(name, safe="#/$~-_."))
    if not places:
        return {}
    value = ", ".join(places)
    if len(value) > _MOST_CHARACTERS:
        value = value[:_MOST_CHARACTERS].rpartition(", ")[0] + ", ..."
    return {HEADER: value}


def warnings_of(generation: Generation) -> dict[str, Any]:
    """The member ``warnings`` of an answer; nothing where there are none."""
    relaxed = () if generation.relaxed is None else generation.relaxed.warnings
    warnings: list[dict[str, Any]] = [
        {
            "code": "inexact" if each.relaxation.inexact else "relaxed",
            "function": each.function,
            "pointer": each.relaxation.pointer,
            "keyword": each.relaxation.keyword or None,
            "satisfied": each.satisfied,
            "message": ("" if each.relaxation.inexact else "not enforced: ")
            + each.relaxation.reason,
        }
        for each in relaxed
    ]
    warnings += [
        {
            "code": "budget_closed",
            "function": each.function,
            "pointer": each.pointer,
            "keyword": None,
            "satisfied": None,
            "message": "the token limit cut this value short; raise max_tokens",
            "choice": each.choice,
        }
        for each in sorted(generation.closed, key=lambda closed: closed.choice)
    ]
    return {"warnings": warnings} if warnings else {}
