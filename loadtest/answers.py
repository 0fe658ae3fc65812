"""The outcome of a request: times, tokens, and the verdict on its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from loadtest.connection import Exchange
from loadtest.requests import Call, Content, Request, Verdict, verdict

Outcome = Verdict | Literal["refused", "failed"]
"""``refused`` is a 4xx status, ``failed`` any other request without an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one request. Times are seconds since it was due, so they include delays."""

    task: str
    outcome: Outcome
    seconds: float
    """Time until the last byte."""
    first: float | None = None
    """Time to first token: the first chunk with text or a call."""
    gaps: tuple[float, ...] = ()
    """Times between such chunks; a chunk may have several tokens."""
    tokens: int = 0
    counted: bool = True
    """Whether the server reported the number of tokens; if not, ``tokens`` counts chunks."""
    forward_passes: int | None = None
    leapt: int | None = None
    drafted: int | None = None
    right: int | None = None
    """Number of correct parts, of ``parts``; None if the request has no expected answer."""
    parts: int = 0
    text: str = ""
    detail: str = ""
    """The error of a refused or failed request."""

    @property
    def complete(self) -> bool:
        """Whether an answer arrived, right or wrong."""
        return self.outcome not in ("refused", "failed")


def failed(request: Request, seconds: float, why: str, outcome: Outcome = "failed") -> Answer:
    right = 0 if request.expected is not None else None
    parts = request.expected.right(Content("", (), None))[1] if request.expected else 0
    return Answer(request.task, outcome, seconds, right=right, parts=parts, detail=why)


def read_answer(request: Request, due: float, exchange: Exchange) -> Answer:
    """Check a complete answer. Call it after the measurement: parsing and checking take time."""
    seconds = exchange.ended - due
    if exchange.status != 200:
        outcome: Outcome = "refused" if 400 <= exchange.status < 500 else "failed"
        detail = f"{exchange.status} {exchange.body[:300].decode(errors='replace')}"
        return failed(request, seconds, detail, outcome)
    stream = _Stream()
    try:
        for moment, event in _events(exchange):
            stream.take(moment, event)
    except (ValueError, KeyError, TypeError) as error:
        return failed(request, seconds, f"not a stream of chunks: {error!r}")
    if stream.error is not None or stream.finish_reason is None:
        return failed(request, seconds, stream.error or "the stream ended early")
    times, usage = stream.times, stream.usage
    details = usage.get("completion_tokens_details") or {}
    content = stream.content()
    text = content.text or json.dumps([(call.name, call.arguments) for call in content.calls])
    right, parts = (None, 0) if request.expected is None else request.expected.right(content)
    return Answer(
        request.task,
        verdict(request.constraint, content),
        seconds,
        first=times[0] - due if times else None,
        gaps=tuple(after - before for before, after in pairwise(times)),
        tokens=usage.get("completion_tokens", len(times)),
        counted="completion_tokens" in usage,
        forward_passes=details.get("forward_passes"),
        leapt=details.get("leapt_tokens"),
        drafted=details.get("drafted_tokens"),
        right=right,
        parts=parts,
        text=text,
    )


def _events(exchange: Exchange) -> Iterator[tuple[float, Any]]:
    """JSON of every server-sent event, and the time when its last byte arrived."""
    rest = b""
    for moment, piece in exchange.pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and data != b"[DONE]":
                yield moment, json.loads(data)


@dataclass(slots=True)
class _Stream:
    """Collects the chunks of a stream."""

    times: list[float] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    calls: dict[int, list[str]] = field(default_factory=dict)
    """By index: name, then pieces of the arguments."""
    finish_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    def take(self, moment: float, event: Any) -> None:
        if "error" in event:
            self.error = json.dumps(event["error"])
            return
        self.usage = event.get("usage") or self.usage
        for choice in event.get("choices", ()):
            delta = choice.get("delta") or {}
            carries = self._take_calls(delta.get("tool_calls") or ())
            if piece := delta.get("content") or choice.get("text"):  # ``text`` in /v1/completions
                self.text.append(piece)
                carries = True
            if carries or delta.get("reasoning_content") or delta.get("reasoning"):
                self.times.append(moment)
            self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def _take_calls(self, deltas: Any) -> bool:
        for delta in deltas:
            function = delta.get("function") or {}
            parts = self.calls.setdefault(delta.get("index", 0), [""])
            parts[0] += function.get("name") or ""
            parts.append(function.get("arguments") or "")
        return bool(deltas)

    def content(self) -> Content:
        calls = [Call(name, "".join(pieces)) for _, (name, *pieces) in sorted(self.calls.items())]
        return Content("".join(self.text), calls, self.finish_reason)
