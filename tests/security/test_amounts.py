"""Small requests that cause much work, and leaks from the answers of other clients."""

from __future__ import annotations

import asyncio
import hmac
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.answer.formats import ChatFormat
from app.answer.formats.calls import ToolFormat
from app.answer.formats.families import HERMES, LLAMA, MISTRAL
from app.answer.reader import AnswerReader
from app.answer.tools import FunctionTool, ToolUse
from app.core.events import AnswerUsage
from app.engine import EngineConfig
from app.http.keys import ApiKeys
from tests.engine.harness import answer_of, constraint, make_engine, request, templates, varied
from tests.http.harness import CHAT, CONFIG, application, chat, client_of
from tests.servers import Forked
from tests.serving.fakes import Bench

ROOMY = replace(CONFIG, max_body_bytes=4 << 20)
MUCH = "\x7f" * (1 << 20)  # repr writes each as \\x7f


@pytest.mark.parametrize(
    "body",
    [
        chat(model=MUCH),
        {**chat(), MUCH: 1},
        chat(messages=[{"role": "user", "content": [{"type": MUCH}]}]),
        chat(messages=[{"role": "tool", "content": "", "tool_call_id": MUCH}]),
        chat(chat_template_kwargs={MUCH: 1}),
        chat(response_format={"type": "json_schema", "schema_id": MUCH}),
        chat(structural_tag={"type": "structural_tag", "format": {"type": MUCH}}),
        chat(logit_bias={MUCH: 1}),
        chat(stop=[MUCH]),
    ],
)
async def test_an_error_quotes_a_little_of_what_was_sent(body: dict[str, Any]) -> None:
    async with client_of(Bench(), replace(ROOMY, unknown_fields="refuse")) as client:
        answer = await client.post(CHAT, json=body)
    assert answer.status_code in (400, 404)
    assert len(answer.content) < 50_000
    assert answer.json()["error"]["message"]


async def test_large_answers_about_tokens_are_made_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The class of CVE-2026-71486: these requests need no model, so no queue limits them."""
    bench = Bench()
    running, most, lock = 0, 0, threading.Lock()

    def decode(tokens: Sequence[int]) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return ""

    monkeypatch.setattr(bench.tokenizer, "decode", decode)
    async with client_of(bench, ROOMY) as client:
        body = {"tokens": [1] * (1 << 16)}
        sent = [client.post("/detokenize", json=body) for _ in range(4)]
        answers = await asyncio.gather(*sent)
        assert [answer.status_code for answer in answers] == [200] * 4
        assert most == 1


def steps_to_read(reader: AnswerReader, text: str) -> int:
    """Lines of code that the reader runs for ``text`` in pieces of three characters."""
    steps = 0

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        for start in range(0, len(text), 3):
            reader.push(text[start : start + 3])
        reader.finish()
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize("tools", [HERMES, LLAMA, MISTRAL])
@pytest.mark.parametrize(
    "piece", ["[A(A=\t)A(A=\t,", "<tool_call", '{"name": "', "[TOOL_CALLS", "\n"]
)
def test_an_answer_that_nearly_calls_tools_is_read_in_linear_time(
    tools: ToolFormat, piece: str
) -> None:
    """CVE-2025-48887 and CVE-2025-71379: calls were found by regexes with backtracking."""

    def steps(times: int) -> int:
        reader = AnswerReader(ChatFormat(tools), use=ToolUse((FunctionTool("f"),)))
        return steps_to_read(reader, piece * times)

    assert steps(800) < 2.5 * steps(400)


async def test_the_event_loop_has_its_turn_between_two_renderings_of_metrics() -> None:
    app, turns, rendered = application(Bench()), 0, list[int]()

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def render() -> tuple[bytes, str]:
        rendered.append(turns)
        return b"", "text/plain"

    app.state.api.render_metrics = render
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        other = asyncio.create_task(other_work())
        await asyncio.gather(*[client.get("/metrics") for _ in range(20)])
        other.cancel()
    assert len(set(rendered)) == 20


def test_every_key_is_compared_whether_or_not_one_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CVE-2025-59425: the time of a comparison showed how much of a key was right."""
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    keys = ApiKeys(["first", "second", "third"])
    for offered in (b"first", b"third", b"firs", b"", b"x" * 10_000):
        compared.clear()
        assert (keys.number(offered) is not None) is (offered in (b"first", b"third"))
        assert len(compared) == 3
        # Digests are compared: the time shows neither length nor prefix of the offered key.
        assert {len(each) for pair in compared for each in pair} == {32}


def test_the_server_imports_no_cache_of_pickles() -> None:
    """CVE-2025-69872: diskcache, a dependency of outlines, reads pickles from a folder."""
    code = (
        "import sys, app.server.serve, app.constraint, app.engine; "
        "import app.serving.workers.worker_process; "
        "sys.exit('diskcache' in sys.modules)"
    )
    assert Forked(exec, code, {}).wait() == 0


FORM = constraint(
    *templates('{"result": "', ["positive", "negative"], '", "n": "', ["na", "ab"], '"}')
)
SECRETS = ("the record of Ann", "the record of Ben", "the record of Cal", "the record of Dee")


def usage_after(others: str, config: EngineConfig, *, draft: bool) -> AnswerUsage | None:
    """Usage of an answer after another answer of the same constraint."""
    engine = make_engine(config)
    answer_of(engine, varied(request(prompt=others, allowed=FORM, max_tokens=60), draft=draft))
    asked = request(prompt=SECRETS[0] + "?", allowed=FORM, max_tokens=60)
    return answer_of(engine, varied(asked, draft=draft)).usage


def test_without_drafts_and_shared_prefixes_usage_tells_nothing_of_others() -> None:
    private = EngineConfig(share_prefixes=False)
    assert len({str(usage_after(each, private, draft=False)) for each in SECRETS}) == 1
    # With both, usage differs, see docs/security.md; otherwise this test would show nothing.
    assert len({str(usage_after(each, EngineConfig(), draft=True)) for each in SECRETS}) > 1
