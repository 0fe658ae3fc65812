"""What every API reports beside an answer's text: values, log-probabilities, origins, warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import quote

from pydantic import Field
from pydantic_core import to_json

from app.answer.pieces import Confidence, FieldValue, Measurements, Span, TokenByToken
from app.core.constraint import Vocabulary
from app.core.events import AnswerToken, AnswerUsage, Origins, OriginToken
from app.http.openapi import Shape
from app.serving.generation import Generation


class TokenSources(Shape):
    """How the tokens of answers came about."""

    leapt_tokens: int
    """Forced by the constraint, and never decoded."""
    drafted_tokens: int
    """Guessed and confirmed."""
    held_tokens: int
    """Forced, but left to the model, as the next character could still merge with them."""
    forward_passes: int


def token_sources(usage: AnswerUsage) -> dict[str, int]:
    return {
        "leapt_tokens": usage.leapt_tokens,
        "drafted_tokens": usage.drafted_tokens,
        "held_tokens": usage.held_tokens,
        "forward_passes": usage.forward_passes,
    }


def measured(piece: Measurements) -> dict[str, Any]:
    """What a choice reports of its values: fields and their lists."""
    found: dict[str, Any] = {}
    if piece.confidence is not None:
        found["confidence"] = [_confidence(each) for each in piece.confidence]
    if piece.inexact:
        found["inexact"] = [{**_pointed(each), "what": each.what} for each in piece.inexact]
    if piece.spans is not None:
        found["spans"] = [{**_pointed(each), **_place(each)} for each in piece.spans]
    return found


def _pointed(value: Confidence | TokenByToken | Span) -> dict[str, Any]:
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


def _place(span: Span) -> dict[str, Any]:
    return {"part": span.part, "start": span.start, "end": span.end}


class PromptPlace(Shape):
    """Where a value stands in the prompt; the first place, if there are several."""

    part: str
    """Which text: ``messages[1]``, ``input``, ``input[0]``."""
    start: int
    """In characters (Unicode code points) of that text."""
    end: int
    """Behind its last character."""


class ValueSpan(PromptPlace):
    """Where a value of the answer stands in the prompt."""

    tool_call: int = 0
    """Of a call's arguments: which call, from 0."""
    pointer: str
    """JSON Pointer (RFC 6901)."""


class LeastLikelyToken(Shape):
    token: str
    probability: float


class ConfidenceAlternative(Shape):
    """One of ``value``, ``next``, ``type`` and ``other`` tells which."""

    value: Any = None
    next: str | int | None = None
    """The next key or index; null: the object or array ends."""
    type: str = ""
    """One of many values of this type, or of many keys."""
    other: int = 0
    """How many are left, which are told together."""
    probability: float


class ValueConfidence(Shape):
    """A value has ``value``, and what came next in an object or array ``next``."""

    tool_call: int = 0
    """Of a call's arguments: which call, from 0."""
    pointer: str
    """JSON Pointer (RFC 6901)."""
    value: Any = None
    next: str | int | None = None
    probability: float
    mass: float = Field(default=0.0)
    alternatives: list[ConfidenceAlternative] = Field(default=[])
    tokens: int = 0
    span: PromptPlace | None = None
    """Of a string with x-verbatim: where it stands."""
    least_likely: LeastLikelyToken | None = None


class InexactChoice(Shape):
    """A choice that was to be drawn as a whole and was drawn token by token."""

    tool_call: int = 0
    """Of a call's arguments: which call, from 0."""
    pointer: str
    """JSON Pointer (RFC 6901) to the value, or to the object or array."""
    what: Literal["value", "next"]
    """The value itself, or what came next in the object or array."""


class Measured(Shape):
    """What a choice tells of its values; where nothing was asked for, nothing."""

    confidence: list[ValueConfidence] = Field(default=[])
    inexact: list[InexactChoice] = Field(default=[])
    spans: list[ValueSpan] = Field(default=[])


class CompleteValue(Shape):
    tool_call: int = 0
    """Of a call's arguments: which call, from 0."""
    pointer: str
    """JSON Pointer (RFC 6901)."""
    value: Any = None
    """Missing where it is large: its parts have been told."""


def with_fields(data: bytes, values: Sequence[FieldValue]) -> bytes:
    """``data``, a JSON object, with the member ``fields`` at its end."""
    return b"".join((data[:-1], b',"fields":[', b",".join(map(_complete_value, values)), b"]}"))


def _complete_value(value: FieldValue) -> bytes:
    call = b"" if value.call is None else b'"tool_call":%d,' % value.call
    entry = b'{%b"pointer":%b' % (call, to_json(value.pointer))
    if value.text is None:
        return entry + b"}"
    # White space alone has line ends, which would end the event's line.
    text = value.text.replace(b"\n", b" ").replace(b"\r", b" ")
    return entry + b',"value":%b}' % text


LOWEST_LOGPROB = -9999.0
"""What OpenAI reports for a probability of zero; JSON has no infinity."""


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
    """Its text, with U+FFFD for what is no whole character by itself."""
    bytes: list[int]
    """Those of all tokens, joined, are the answer's text, with marks of reasoning and calls."""
    source: Literal["sampled", "drafted", "held", "leapt"]
    logprob: float | None = None
    """Where log-probabilities were asked for; null: it was not drawn as it stands."""
    top_logprobs: list[TopLogprob] = Field(default=[])


class TokenOrigins(Shape):
    """From the answer's token ``index`` on, its tokens are now these."""

    index: int
    tokens: list[TokenOrigin]


def origins_entry(origins: Origins, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """``vocabulary`` is given where log-probabilities are asked for."""
    return {
        "index": origins.index,
        "tokens": [_origin(token, vocabulary) for token in origins.tokens],
    }


def merged(before: Origins | None, after: Origins) -> Origins:
    """Two changes as one."""
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
"""Of the header, which proxies bound; the warnings in the body have all."""


class Warning(Shape):
    """A keyword that the answer was not held to, as it cannot be enforced (``relaxed``), or that
    validators read in another way, too (``inexact``); or the first string, array or object of a
    choice that ended as ``max_tokens`` left no room for more of it (``budget_closed``)."""

    code: Literal["relaxed", "inexact", "budget_closed"]
    function: str | None
    """Whose parameters, or arguments; None: the content, or its schema."""
    pointer: str
    """JSON Pointer (RFC 6901) to the keyword, or to a subschema of which only the type holds; into
    the answer to the value that ended."""
    keyword: str | None
    satisfied: bool | None
    """Whether what was written satisfies it anyway; None: it was not used, or not found out."""
    message: str
    choice: int | None = None
    """Whose value ended."""


def relaxed_headers(generation: Generation) -> dict[str, str]:
    """``FUNCTION#POINTER`` for each place, percent-encoded, with commas between."""
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
