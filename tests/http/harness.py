"""The real application on a fake engine: in memory, or behind a real server and the real SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import httpx
import openai
import uvicorn
from fastapi import FastAPI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from app.answer.formats import ChatFormat
from app.http.application import build_app
from app.http.config import ApiConfig
from app.http.connection import BoundedConnection
from app.http.endpoint import Api
from app.serving.kept_responses import ResponseStore
from app.serving.usage import UsageByKey
from app.store.store import Store
from tests.fakes import ByteVocabulary
from tests.serving.fakes import PLAIN, Bench, FakeEngine

CONFIG = ApiConfig(
    served_model="demo",
    max_model_len=1000,
    version="1.2.3",
    chat_format=PLAIN,
    fingerprint="fp_test",
    products="torch",
    created=1700000000,
    max_body_bytes=20_000,
    max_nesting=20,
    max_n=4,
    max_messages=8,
    head_seconds=3600.0,
)
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
HI: Any = {"role": "user", "content": "hi"}
BODIES: Mapping[str, Mapping[str, Any]] = {
    CHAT: {"model": "demo", "messages": [HI]},
    COMPLETIONS: {"model": "demo", "prompt": "hi"},
    RESPONSES: {"model": "demo", "input": "hi"},
    MESSAGES: {"model": "demo", "messages": [HI], "max_tokens": 9},
}
"""The body of a request that says ``hi``, for each API that generates."""


def application(
    bench: Bench,
    config: ApiConfig = CONFIG,
    responses: ResponseStore | None = None,
    store: Store | None = None,
    usage: UsageByKey | None = None,
) -> FastAPI:
    api = Api(
        config=replace(config, chat_format=bench.chat_format),
        service=bench.service,
        vocabulary=ByteVocabulary(),
        schemas=bench.schemas,
        graphs=bench.graphs,
        render_metrics=lambda: (b"a_metric 1\n", "text/plain; version=0.0.4"),
        responses=responses,
        store=store,
        usage=usage,
    )
    return build_app(api)


@asynccontextmanager
async def client_of(
    bench: Bench,
    config: ApiConfig = CONFIG,
    responses: ResponseStore | None = None,
    store: Store | None = None,
    usage: UsageByKey | None = None,
) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of the application, with nothing between them."""
    app = application(bench, config, responses, store, usage)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        bench.running(),
        httpx.AsyncClient(
            transport=transport, base_url="http://test", event_hooks={"response": [validate]}
        ) as client,
    ):
        yield client


async def validate(response: httpx.Response) -> None:
    """Check each chat completion of a test strictly against the SDK's types."""
    asked = response.request
    if (asked.method, asked.url.path) != ("POST", CHAT) or response.status_code != 200:
        return
    await response.aread()
    if response.headers["content-type"] == "application/json":
        ChatCompletion.model_validate_json(response.content, strict=True)
        return
    for event in events(response.text):
        # The SDK has no type for deltas of custom tools (openai-openapi, issue 576).
        if event != "[DONE]" and "error" not in event and '"custom"' not in json.dumps(event):
            ChatCompletionChunk.model_validate_json(json.dumps(event), strict=True)


class _QuietServer(uvicorn.Server):
    """Leaves the signals to pytest."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(
    app: FastAPI, http: type[BoundedConnection] = BoundedConnection
) -> AsyncIterator[str]:
    """The URL of a real server on a free port; ``http`` makes its connections."""
    config = uvicorn.Config(
        app, port=0, http=http, log_config=None, ws="none", timeout_graceful_shutdown=1
    )
    server = _QuietServer(config)
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(300):
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def sdk_of(bench: Bench) -> AsyncIterator[openai.AsyncOpenAI]:
    """OpenAI's SDK against a real server."""
    async with (
        bench.running(),
        listening(application(bench)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def chat(**fields: Any) -> dict[str, Any]:
    """The body of a request that says ``hi``."""
    return {**BODIES[CHAT], **fields}


def events(text: str) -> list[Any]:
    """The data of server-sent events, parsed; ``[DONE]`` as text. If the first has its type as its
    name, all have."""
    assert text.endswith("\n\n")
    found: list[Any] = []
    for event in text[:-2].split("\n\n"):
        name, _, data = event.partition("data: ")
        found.append(data if data == "[DONE]" else json.loads(data))
        named = text.startswith("event: ")
        assert name == (f"event: {found[-1]['type']}\n" if named else "")
    return found


def writing(text: str | bytes, format: ChatFormat = PLAIN, size: int = 3, **bench: Any) -> Bench:
    """A bench whose model writes ``text``, ``size`` bytes at a time."""
    data = text.encode() if isinstance(text, str) else text
    pieces = [data[start : start + size] for start in range(0, len(data), size)] or [b""]
    return Bench(FakeEngine(lambda request: pieces), chat_format=format, **bench)


async def post(
    bench: Bench, path: str, body: Any, status: int = 200, config: ApiConfig = CONFIG
) -> httpx.Response:
    """The answer to one request, which has ``status``."""
    async with client_of(bench, config) as client:
        response = await client.post(path, json=body)
    assert response.status_code == status, response.text
    return response


async def streamed(bench: Bench, path: str, **fields: Any) -> list[Any]:
    """The events of a streamed answer, without ``[DONE]``."""
    answer = await post(bench, path, {**BODIES[path], "stream": True, **fields})
    return [each for each in events(answer.text) if each != "[DONE]"]


def error_of(response: httpx.Response, status: int = 400) -> dict[str, Any]:
    """The error in an answer that has the envelope, all four keys and a request id."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() - {"type", "request_id"} == {"error"}
    error = body["error"]
    assert set(error) - {"pointer", "line", "column", "position"} == {
        "message", "type", "param", "code"
    }  # fmt: skip
    assert response.headers["x-request-id"].startswith("req_")
    return dict(error)


async def refusal(
    path: str, body: Any, status: int = 400, bench: Bench | None = None
) -> dict[str, Any]:
    """The error of a request that the engine never gets and that is counted with ``status``."""
    bench = bench or Bench()
    error = error_of(await post(bench, path, body, status), status)
    assert bench.engine.added == []
    assert [stats.status for stats in bench.observer.requests] == [status]
    return error
