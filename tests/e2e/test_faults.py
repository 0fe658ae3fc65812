"""Small versions of the fault tests (docs/reliability.md) against real processes."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from loadtest.faults import engine_death, fuzz_http
from loadtest.faults.client import ask, chat, content, json_schema, regex
from loadtest.faults.disconnects import leave
from loadtest.faults.findings import Report
from loadtest.faults.kv_pressure import TOKEN_BYTES
from loadtest.faults.setting import Setting
from loadtest.faults.watch import compile_workers, metric, settle
from loadtest.server import Server
from tests.wide import many

CONTEXT = 320
CHOICES = 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose cache holds less than two full contexts, and whose engine can be killed."""
    with Setting(tmp_path_factory.mktemp("faults")).server(
        engine_death.COMMAND,
        kv_cache_bytes=str(CONTEXT * 5 // 4 * TOKEN_BYTES),
        max_model_len=str(CONTEXT),
        max_running=str(CHOICES),
    ) as server:
        yield server


async def test_answers_that_exceed_the_cache_together_equal_those_alone(
    server: Server,
) -> None:
    def question(seed: int, n: int) -> dict[str, object]:
        pattern = regex("[a-z ]{160,180}")
        return chat("Write.", response_format=pattern, seed=seed, n=n, max_tokens=200)

    alone = [await content(server.url, question(seed, 1)) for seed in range(CHOICES)]
    before = await metric(server.url, "preemptions_total")
    status, body = await ask(server.url, question(0, CHOICES))
    assert status == 200
    together = [choice["message"]["content"] for choice in json.loads(body)["choices"]]
    assert together == alone
    assert await metric(server.url, "preemptions_total") > before


async def test_clients_that_leave_at_random_points_leave_nothing_behind(server: Server) -> None:
    left: Counter[str] = Counter()
    answer = {"response_format": regex("[a-z ]{250,280}"), "max_tokens": 250}
    await leave(server.url, random.Random(0), 40, left, answer)
    assert left.total() == 40
    await settle(server.url)  # raises if a request still runs, waits or holds a block
    assert (await ask(server.url, chat("Hello!")))[0] == 200


async def test_killed_compile_workers_cost_no_request_its_answer(server: Server) -> None:
    killed = compile_workers(server.process.pid)
    assert len(killed) == 2
    for worker in killed:
        os.kill(worker, signal.SIGKILL)
    for name in ("first", "second", "third"):
        schema = json_schema({"type": "object", "properties": {name: {"type": "null"}}})
        status, body = await ask(server.url, chat("Hi", response_format=schema, max_tokens=50))
        assert status == 200, body


async def test_broken_requests_of_every_kind_get_no_5xx(server: Server) -> None:
    findings = fuzz_http.Findings()
    await fuzz_http.fuzz(server.url, range(many(160, 2)), findings)
    assert findings.wrong == []
    assert findings.statuses[200] > 10
    assert findings.statuses[400] > 10
    assert server.process.poll() is None


async def test_the_death_of_the_engine_fails_all_requests_and_the_process(
    server: Server,
) -> None:
    """The last test of this file: it ends the server that the others use."""
    report = Report("engine")
    answer = chat("Write.", response_format=regex("[a-z ]{250,280}"))
    await engine_death.kill(server, report, answer)
    assert [row for row in report.rows if not row.held] == []
