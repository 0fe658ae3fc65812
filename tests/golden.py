"""Golden transcripts: answers of the demo model's server to some hundred requests.

    python -m tests.golden record FILE      python -m tests.golden compare FILE

The first writes status, headers, body and log line of each answer; the second repeats the requests
and shows what differs. Requests run one at a time, and each step of the engine waits until its
tokens are written, so that streams have the same events each time. Ids count; the clock stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import itertools
import json
import logging
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from app.core.progress import SILENCE
from app.server import composition
from app.server.backend import load_backend
from app.server.settings import Settings
from app.serving.compiling.validation import Validation
from app.telemetry.metrics import Metrics

Case = tuple[str, str, bytes | None, dict[str, str]]
"""Method, path, body and headers."""

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "mood": {"enum": ["glad", "sad", None]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 2},
    },
    "required": ["name", "age", "mood", "tags"],
}
QUOTE = {"type": "object", "properties": {"who": {"type": "string", "x-verbatim": True}}}
RELAXED = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 4}},
    "required": ["a"],
    "unevaluatedProperties": {"pattern": "(a)\\1"},
}
FORMATS: list[dict[str, Any]] = [
    {},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}},
    {"response_format": {"type": "json_object"}, "on_budget": "truncate"},
    {"response_format": {"type": "json_schema", "schema": QUOTE}, "spans": True},
    {"response_format": {"type": "json_schema", "schema": RELAXED, "strict": False}},
    {"response_format": {"type": "json_schema", "schema": RELAXED, "strict": True}},
    {"response_format": {"type": "choice", "choices": ["yes", "no", "maybe"]}, "confidence": True},
    {"regex": "[a-c]{2,5}", "logprobs": True},
    {"grammar": 'root ::= "a" | "b" root'},
    {"guided_json": PERSON, "structured_outputs": {"regex": "a"}},
    {"structural_tag": {"format": {"type": "const_string", "value": "done"}}},
]
FUNCTION = {"name": "look", "description": "Look at it.", "parameters": PERSON}
CHAT_TOOLS = [
    {"type": "function", "function": FUNCTION},
    {"type": "custom", "custom": {"name": "note"}},
]
OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"top_p": 0.5, "top_k": 20, "min_p": 0.05, "seed": 7},
    {"frequency_penalty": 1, "presence_penalty": 0.5, "repetition_penalty": 1.2},
    {"logit_bias": {"5": 50, "9": -100}},
    {"logit_bias": {"999999": 1}},
    {"stop": ["e", "\n"]},
    {"stop": ["", "a"]},
    {"stop": ["x" * 1025]},
    {"stop_token_ids": [4, 5], "ignore_eos": True},
    {"min_tokens": 9},
    {"min_tokens": 99},
    {"leap": False, "draft": False},
    {"prediction": {"type": "content", "content": "Hello, how are you?"}},
    {"confidence": True},
    {"choices": "exact"},
    {"spans": True},
    {"timeout": 0.0001},
    {"timeout": 600, "on_unsupported": "relax"},
    {"usage": {"include": True}},
    {"user": "u", "metadata": {}, "priority": 3, "service_tier": "auto", "verbosity": "low"},
    {"unheard": 1, "echo": True, "mirostat": 2},
    {"temperature": 3},
    {"temperature": "1"},
    {"n": 2},
    {"n": 99},
    {"n_predict": 5},
    {"seed": 1.5},
    {"model": "other"},
    {"model": 3},
    {"stream_options": {"include_usage": True, "fields": True, "origins": True, "odd": 1}},
    {"logprobs": True, "top_logprobs": 2},
    {"top_logprobs": 3},
    {"schema_in_prompt": True},
    {"reasoning_effort": "high", "reasoning": {"effort": "low"}},
    {"reasoning": {"max_tokens": 8}},
    {"thinking": {"type": "disabled"}},
    {"chat_template_kwargs": {"enable_thinking": False, "messages": []}},
    {"tool_choice": "required"},
    {"response_format": {"type": "json_schema", "schema": {"type": "strin"}}},
    {"response_format": {"type": "json_schema", "schema_id": "schema_none"}},
    {"store": True, "previous_response_id": "resp_none"},
]
CONVERSATIONS: list[list[Any]] = [
    [],
    [{"role": "user"}],
    [{"role": "nobody", "content": "a"}],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}],
    [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": "It"}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "Ada is 36."},
    ],
    [{"role": "tool", "tool_call_id": "c2", "content": "?"}],
]


def _post(path: str, body: Any, **headers: str) -> Case:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return "POST", path, data, {"content-type": "application/json", **headers}


def _bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Paths and bodies of requests to the four APIs; each is also sent as a stream."""
    say: list[Any] = [{"role": "user", "content": "Tell me about Ada, who is 36."}]
    chat = {"model": "demo", "messages": say, "max_tokens": 20, "seed": 5}
    text = {"model": "demo", "prompt": "Ada is", "max_tokens": 12, "seed": 5}
    response = {"model": "demo", "input": "Ada?", "max_output_tokens": 20, "seed": 5}
    message = {"model": "demo", "messages": say, "max_tokens": 20, "seed": 5}
    json_format = {**FORMATS[1], "max_tokens": 60, "max_output_tokens": 60}
    for options in (*OPTIONS, *FORMATS, *({**json_format, **each} for each in OPTIONS)):
        if "max_output_tokens" in options:
            yield "/v1/responses", {
                **{k: v for k, v in {**response, **options}.items()
                   if k not in ("response_format", "max_tokens")},
                "text": {"format": {"type": "json_schema", "name": "p", "schema": PERSON}},
            }  # fmt: skip
            options = {k: v for k, v in options.items() if k != "max_output_tokens"}
        yield "/v1/chat/completions", {**chat, **options}
        yield "/v1/completions", {**text, **options, "logprobs": 2 * ("logprobs" in options)}
        named = dict(options)
        if format := named.pop("response_format", None):
            named["text"] = {"format": {"name": "p", **format}}
        yield "/v1/responses", {**response, **named}
        if schema := (format or {}).get("schema"):
            named["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        named.pop("text", None)
        yield "/v1/messages", {**message, **named}
    fields = {"stream_options": {"fields": True, "origins": True}, "stream": True, "spans": True}
    yield "/v1/chat/completions", {**chat, **FORMATS[3], **fields, "logprobs": True}
    yield "/v1/messages", {**message, **fields, "output_config": {
        "format": {"type": "json_schema", "schema": QUOTE}, "effort": "low"}}  # fmt: skip
    for choice in ("auto", "none", {"type": "function", "function": {"name": "look"}}, "required",
                   {"type": "function", "function": {"name": "none"}}):  # fmt: skip
        more = {"tools": CHAT_TOOLS, "tool_choice": choice, "max_tokens": 60}
        yield "/v1/chat/completions", {**chat, **more, "confidence": choice == "required"}
    inner: list[Any] = [{"type": "custom", "name": "note"}]
    space: list[Any] = [{"type": "namespace", "name": "ns", "tools": inner}]
    tools: list[Any] = [{"type": "function", **FUNCTION}, {"type": "web_search"}, *space]
    for named_tool in ("required", {"type": "function", "name": "look"}, "none", {"type": "mcp"}):
        yield "/v1/responses", {**response, "tools": tools, "tool_choice": named_tool}
    own = [{"name": "look", "input_schema": PERSON}, {"type": "bash_20250124", "name": "bash"}]
    for kind in ({"type": "any"}, {"type": "tool", "name": "look"}, {"type": "none"}):
        yield "/v1/messages", {**message, "tools": own, "tool_choice": kind, "max_tokens": 60}
    yield "/v1/responses", {**response, "previous_response_id": "@last@", "store": True}
    yield "/v1/responses", {**response, "input": [{"type": "item_reference", "id": "@last@"}]}
    for format in ({"schema_id": "@schema@"}, {"schema_id": "@schema@", "whitespace": "compact"}):
        more = {"response_format": {"type": "json_schema", **format}, "max_tokens": 90}
        yield "/v1/chat/completions", {**chat, **more}
    for turns in CONVERSATIONS:
        for path, body in (("/v1/chat/completions", chat), ("/v1/messages", message)):
            yield path, {**body, "messages": turns}
        yield "/v1/chat/completions", {**chat, "messages": turns, "continue_final_message": True}
        yield "/v1/responses", {**response, "input": turns}
    for prompt in ([1, 2, 3], [[1], [2]], ["a", "b"], [], [-1], ["a", 2], None, {"a": 1}, ""):
        yield "/v1/completions", {**text, "prompt": prompt, "echo": True, "logprobs": 1, "n": 2}
    yield "/v1/messages", {**message, "thinking": {"type": "enabled", "budget_tokens": 8}}
    yield "/v1/messages", {**message, "system": "Be brief.", "stop_sequences": ["a"]}


def _cases() -> Iterator[Case]:
    yield _post("/v1/schemas", {"schema": PERSON, "name": "p", "graph": {"max_states": 20}})
    for path, body in _bodies():
        yield _post(path, body)
        if not body.get("stream"):
            yield _post(path, {**body, "stream": True})
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
                 "/v1/schemas", "/tokenize"):  # fmt: skip
        for data in (b"", b"{", b"[]", b"[" * 200, b'{"a": NaN}', b'{"model": "demo"}', b"\xff"):
            yield _post(path, data)
        yield _post(path, b"x" * 70_000)
        yield _post(path, {}, **{"content-encoding": "gzip"})
        yield "GET", path, None, {}
        yield "OPTIONS", path, None, {
            "origin": "https://a.example", "access-control-request-method": "POST"}  # fmt: skip
        yield _post(path, {"model": "demo"}, origin="https://b.example")
        yield _post(path, {"model": "demo"}, origin="http://localhost:3000")
        yield "POST", path, b"a=b", {"origin": "null", "content-type": "text/plain"}
    for body in (
        {"schema": PERSON, "strict": False, "whitespace": "compact"},
        {"response_format": {"type": "regex", "pattern": "a+"}},
        {"response_format": {"type": "json_object"}, "strict": True},
        {"schema": True, "documents": [{}]},
        {"schema": RELAXED},
    ):
        yield _post("/v1/schemas", body)
    for path in ("schema_none", "@schema@"):
        yield _post(f"/v1/schemas/{path}/walk", {"text": '{"name": "A'})
    for path in ("schemas/@schema@", "responses/@last@", "responses/@last@/input_items?limit=1"):
        yield "GET", f"/v1/{path}", None, {}
    yield "POST", "/v1/responses/@last@/cancel", None, {}
    yield "DELETE", "/v1/responses/@last@", None, {}
    say = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
    yield _post("/tokenize", {**say, "return_token_strs": True, "odd": 1})
    yield _post("/tokenize", {"prompt": "Hi", "return_token_strs": True})
    yield _post("/detokenize", {"tokens": [1, 2, 30]})
    yield _post("/detokenize", {"tokens": [10**6]})
    yield _post("/v1/messages/count_tokens", say)
    yield _post("/v1/responses/input_tokens", {"input": "Hi"})
    for path in ("/v1/models", "/v1/models/demo", "/v1/models/none", "/health", "/ready", "/none",
                 "/version", "/v1/schemas/schema_none", "/v1/responses/resp_none", "/api/tags",
                 "/v1/embeddings", "/openapi.json", "/", "/docs", "/page/none.js",
                 "/v1/responses/resp_none/input_items", "/v2/rerank"):  # fmt: skip
        for method in ("GET", "HEAD", "DELETE", "POST"):
            yield method, path, None, {}
        yield "GET", path, None, {"anthropic-version": "2023-06-01", "origin": "https://a.example"}
    for key in ("Bearer one", "Bearer three", "Basic one", ""):
        for path in ("/v1/chat/completions", "/v1/messages"):
            yield _post(path, {**say, "max_tokens": 3, "seed": 1}, authorization=key)
    yield _post("/v1/messages", {**say, "max_tokens": 3, "seed": 1}, **{"x-api-key": "two"})


SERVERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "keys": {"api_keys": "one,two", "cors_origins": "https://a.example", "max_n": 1,
             "unknown_fields": "refuse", "max_body_bytes": 60_000, "schema_in_prompt": "true"},
    "open": {"cors_origins": "*", "max_queue_tokens": 40, "page": False, "choices": "exact",
             "kept_responses_bytes": 0, "clip_max_tokens": False, "default_max_tokens": 9},
}  # fmt: skip
"""Settings. The first server gets all requests, the others skip most of those with a seed."""


class _Steady:
    """An engine that waits after each output until the event loop has processed it."""

    def __init__(self, engine: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._engine, self._loop = engine, loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def step(self) -> Iterator[Any]:
        for output in self._engine.step():
            yield output
            asyncio.run_coroutine_threadsafe(_settle(), self._loop).result()


async def _settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def _client(settings: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    given = Settings(
        dtype="float32", cpu_threads=1, compile_workers=1, served_model_name="demo", **settings
    )
    metrics = Metrics()
    backend = load_backend(given, metrics, SILENCE)
    backend = replace(backend, engine=_Steady(backend.engine, asyncio.get_running_loop()))
    app = composition.assemble(given, backend, metrics).app
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=600) as client,
    ):
        yield client
    backend.close()


class _Log(logging.Handler):
    line: dict[str, Any] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        usual = logging.makeLogRecord({}).__dict__
        self.line = {k: v for k, v in record.__dict__.items()
                     if k not in usual and "seconds" not in k}  # fmt: skip


def _hex_of(counter: Iterator[int]) -> Any:
    return lambda size=16: f"{next(counter):0{2 * size}x}"


async def _answers() -> list[dict[str, Any]]:
    log, found = _Log(), []
    logging.getLogger("leapjson.access").addHandler(log)
    logging.getLogger("leapjson.access").setLevel(logging.DEBUG)
    for server, settings in SERVERS.items():
        known: dict[str, str] = {}
        async with _client(settings) as client:
            for number, (method, path, body, headers) in enumerate(_cases()):
                if server != "plain" and number % 5 and b"seed" in (body or b"")[:150]:
                    continue
                counter = itertools.count(number * 1000)
                secrets.token_hex = _hex_of(counter)
                secrets.randbits = lambda k: next(counter)  # noqa: B023
                log.line = None
                if server == "keys" and number % 3:
                    headers = {"authorization": "Bearer one", **headers}
                for mark, id in known.items():
                    path, body = (
                        path.replace(mark, id),
                        body and body.replace(mark.encode(), id.encode()),
                    )
                answer = await client.request(method, path, content=body, headers=headers)
                if answer.status_code == 200 and path in ("/v1/responses", "/v1/schemas"):
                    with contextlib.suppress(ValueError):
                        known["@last@" if path[4] == "r" else "@schema@"] = answer.json()["id"]
                sent = {k: v for k, v in answer.headers.items() if k != "openai-processing-ms"}
                request = [method, path, (body or b"")[:400].decode(errors="replace"), headers]
                found.append({"server": server, "request": request, "status": answer.status_code,
                              "headers": sent, "body": answer.text, "log": log.line})  # fmt: skip
    return found


def main(command: str, file: str) -> int:
    time.time = lambda: 1_700_000_000.0
    # On a busy machine the default limit, one second, could be too short.
    setattr(composition, "Validation", partial(Validation, seconds=600.0))  # noqa: B010
    found = asyncio.run(_answers())
    if command == "record":
        Path(file).write_text("\n".join(map(json.dumps, found)), encoding="utf-8")
        print(f"{len(found)} answers recorded")
        return 0
    lines = Path(file).read_text(encoding="utf-8").split("\n")
    before, now = ([json.loads(each) for each in texts]
                   for texts in (lines, map(json.dumps, found)))  # fmt: skip
    differ = [pair for pair in zip(before, now, strict=True) if pair[0] != pair[1]]
    for pair in differ[:20]:
        then, here = (json.dumps(each, indent=1, ensure_ascii=False).split("\n") for each in pair)
        print(
            then[3:6],
            *difflib.unified_diff(then, here, "before", "now", n=1, lineterm=""),
            sep="\n",
        )
    print(f"{len(found)} answers, {len(differ)} differ")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
