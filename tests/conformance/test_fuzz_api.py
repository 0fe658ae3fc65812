"""A small part of the fuzzing of the HTTP API, with fixed examples and a fake engine."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import schemathesis
from schemathesis.core.failures import FailureGroup

from tests.conformance.fuzz_api import CHECKS, fuzz, report
from tests.http.harness import application, listening
from tests.serving.fakes import Bench
from tests.wide import many


async def test_answers_to_made_up_requests_are_as_documented() -> None:
    bench = Bench()
    app = application(bench)
    async with bench.running(), listening(app) as url:
        findings = await asyncio.to_thread(fuzz, url, app.openapi(), examples=many(150, 12))
    assert not findings.failures, report(findings)
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/schemas"):
        assert findings.answers[f"POST {path}", 200], report(findings)
        assert findings.answers[f"POST {path}", 400], report(findings)


STREAMS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "logprobs": True},
    "/v1/completions": {"prompt": "hi", "logprobs": 1, "stream_options": {"include_usage": True}},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
}
CHUNKS = ("ChatCompletionChunk", "CompletionChunk", "ResponseEvent", "MessageEvent")


def complaint(document: Any, url: str, path: str, body: dict[str, Any]) -> str:
    """The error that schemathesis reports for the answer to a body; "" if it is as documented."""
    operation = schemathesis.openapi.from_dict(document)[path]["POST"]
    case = operation.Case(body={"model": "demo", **body}, media_type="application/json")
    response = case.call(base_url=url)
    try:
        case.validate_response(response, checks=CHECKS)
    except FailureGroup as group:
        return str(group)
    return ""


async def test_undocumented_events_and_statuses_are_found() -> None:
    bench = Bench()
    app = application(bench)
    false = copy.deepcopy(app.openapi())
    for chunk in CHUNKS:
        false["components"]["schemas"][chunk]["properties"]["surplus"] = {"type": "null"}
        false["components"]["schemas"][chunk]["required"].append("surplus")
    async with bench.running(), listening(app) as url:

        async def reported(document: Any, path: str, body: dict[str, Any]) -> str:
            return await asyncio.to_thread(complaint, document, url, path, body)

        for path, body in STREAMS.items():
            streamed = {**body, "stream": True}
            assert await reported(app.openapi(), path, streamed) == ""
            assert "SSE event violates schema" in await reported(false, path, streamed)
            del false["paths"][path]["post"]["responses"]["400"]
            assert "Undocumented" in await reported(false, path, {**body, "temperature": "hot"})
