from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.__main__ import build_parser, main
from app.server.composition import assemble
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from tests.server.backend import backend, serve, started
from tests.servers import Forked
from tests.serving.fakes import FakeEngine

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"


def chat(text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "leapjson-demo", "messages": messages, **fields}


async def test_the_assembled_server_answers_compiles_and_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    with caplog.at_level("INFO"):
        assembly = assemble(Settings(compile_workers=1), backend(FakeEngine()), metrics)
    told = r"memory limits: start \d+\.\d+ GiB, schemas 0.25 GiB, .*compile_workers 1.00 GiB; "
    assert re.search(told, caplog.text)
    async with started(assembly) as client:
        regex = {"type": "regex", "pattern": "a+"}
        for _ in range(2):
            response = await client.post(CHAT, json=chat("hi", response_format=regex))
            assert response.status_code == 200, response.text
        refused = await client.post(
            CHAT, json=chat("hi", response_format={"type": "regex", "pattern": "refuse"})
        )
        assert refused.status_code == 400
        exposition = (await client.get("/metrics")).text
    for line in (
        "leapjson_schema_cache_hits_total 1.0",
        "leapjson_schema_cache_misses_total 2.0",
        "leapjson_schema_cache_entries 1.0",
        "leapjson_schema_cache_states 3.0",
        "leapjson_schema_cache_masks 2.0",
        "leapjson_num_requests_running 0.0",
        'leapjson_memory_bound_bytes{part="schemas"} 2.68435456e+08',
        'leapjson_memory_bound_bytes{part="kv_cache"} 0.0',
        'leapjson_memory_bound_bytes{part="kept_responses"} 6.7108864e+07',
        'leapjson_memory_bound_bytes{part="compile_workers"} 1.073741824e+09',
        'leapjson_memory_bound_bytes{part="image_workers"} 0.0',
        'leapjson_schema_compile_seconds_count{kind="regex",result="unsupported_schema"} 1.0',
        f'leapjson_requests_total{{endpoint="{CHAT}",finish_reason="stop",status="200"}} 2.0',
        f'leapjson_requests_total{{endpoint="{CHAT}",finish_reason="error",status="400"}} 1.0',
    ):
        assert line in exposition


@asynccontextmanager
async def process(
    drain_seconds: float, pieces: int, *stall_seconds: float, status: int = 0
) -> AsyncIterator[tuple[Forked, str]]:
    """A server process, which must exit with ``status``, and its URL."""
    reader, told = multiprocessing.Pipe(duplex=False)
    started = Forked(serve, told, drain_seconds, pieces, *stall_seconds)
    told.close()
    try:
        async with asyncio.timeout(300):
            yield started, await asyncio.to_thread(reader.recv)
            assert await asyncio.to_thread(started.wait) == status
    finally:
        started.kill()
        started.wait()


async def open_stream(client: httpx.AsyncClient, text: str) -> tuple[Any, Any]:
    request = client.build_request("POST", CHAT, json=chat(text, stream=True))
    response = await client.send(request, stream=True)
    lines = response.aiter_lines()
    await anext(lines)
    return response, lines


async def test_more_choices_than_there_are_places_are_refused_by_name_and_number() -> None:
    settings = Settings(compile_workers=1, max_running=3, max_queue=2)
    assembly = assemble(settings, backend(FakeEngine()), Metrics())
    async with started(assembly) as client:
        fits = await client.post(CHAT, json=chat("hi", n=5))
        large = await client.post(CHAT, json=chat("hi", n=6))
        body = {"model": "leapjson-demo", "prompt": ["a", "b"], "n": 3}
        prompts = await client.post("/v1/completions", json=body)
    assert fits.status_code == 200
    for answer, param in ((large, "n"), (prompts, "prompt")):
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param
        assert "the limit is 5" in answer.json()["error"]["message"]
    assert "n is 6" in large.json()["error"]["message"]


@pytest.mark.parametrize(
    ("settings", "scopes"),
    [
        ({}, ["", ""]),
        ({"api_keys": "one,two"}, ["key 1", "key 2"]),
        ({"api_keys": "one,two", "share_between_keys": True}, ["", ""]),
    ],
)
async def test_what_is_computed_for_one_key_is_of_no_use_to_another_unless_they_share(
    settings: dict[str, Any], scopes: list[str]
) -> None:
    engine = FakeEngine()
    assembly = assemble(Settings(compile_workers=1, **settings), backend(engine), Metrics())
    async with started(assembly) as client:
        for key in ("one", "two"):
            answer = await client.post(
                "/v1/completions",
                json={"model": "leapjson-demo", "prompt": "hi", "max_tokens": 8},
                headers={"Authorization": f"Bearer {key}"},
            )
            assert answer.status_code == 200, answer.text
    assert [request.scope for request in engine.added] == scopes


async def test_sigterm_finishes_what_runs_refuses_what_is_new_and_exits_with_success() -> None:
    # Steps are fast: the long answer needs enough of them to outlast the requests below.
    async with (
        process(drain_seconds=60, pieces=5_000) as (server, url),
        httpx.AsyncClient(base_url=url, timeout=300) as client,
    ):
        assert (await client.get("/ready")).status_code == 200
        response, lines = await open_stream(client, "long")
        server.send_signal(signal.SIGTERM)
        while (await client.get("/ready")).status_code == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        late = await client.post(CHAT, json=chat("hi"))
        assert (late.status_code, late.json()["error"]["code"]) == (503, "draining")
        assert int(late.headers["retry-after"]) >= 1
        seen = [line async for line in lines if line]
        assert seen[-1] == "data: [DONE]"
        assert json.loads(seen[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "stop"
        await response.aclose()


async def test_an_answer_beyond_the_drain_time_ends_with_an_error() -> None:
    async with (
        process(drain_seconds=0.1, pieces=10**6 - 10) as (server, url),
        httpx.AsyncClient(base_url=url, timeout=300) as client,
    ):
        response, lines = await open_stream(client, "long")
        server.send_signal(signal.SIGTERM)
        seen = [line async for line in lines if line]
        error = json.loads(seen[-1].removeprefix("data: "))["error"]
        assert "shut down" in error["message"]
        assert (error["type"], error["code"]) == ("server_error", "shut_down")
        await response.aclose()


async def test_a_process_whose_engine_hangs_answers_and_ends_by_itself() -> None:
    async with (
        process(60, 1, 1.0, status=1) as (_, url),
        httpx.AsyncClient(base_url=url, timeout=300) as client,
    ):
        answers = await asyncio.gather(
            *[client.post(CHAT, json=chat("never")) for _ in range(2)],
        )
        for answer in answers:
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_died")


def test_every_setting_is_a_flag_and_flags_go_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import app.server.serve

    monkeypatch.setenv("LEAPJSON_PORT", "1")
    monkeypatch.setenv("LEAPJSON_MAX_N", "3")
    seen: list[Settings] = []

    def serve(settings: Settings) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr(app.server.serve, "serve", serve)
    assert main(["serve", "--port", "2", "--no-leap", "--max-model-len", "512"]) == 0
    (settings,) = seen
    assert (settings.port, settings.max_n) == (2, 3)
    assert (settings.leap, settings.max_model_len) == (False, 512)
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


def test_a_bad_flag_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--port", "many"])
    assert "port: Input should be a valid integer" in capsys.readouterr().err


def test_version_exits_with_success() -> None:
    parser = build_parser()
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(["--version"])
    assert caught.value.code == 0
