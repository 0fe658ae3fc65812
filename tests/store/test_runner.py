"""Batches from input file to output files, on a server that echoes."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import StoreUnavailable
from app.serving.batches import BatchRunner
from app.store.store import Store
from tests.servers import Forked
from tests.store.lines import (
    LIMITS,
    echo,
    ended,
    jsonl,
    line,
    lines_of,
    make_batch,
    open_folder,
    run_to_the_end,
    running,
    until,
)
from tests.wide import many


async def test_every_line_is_answered_once_and_in_order(tmp_path: Path) -> None:
    store = open_folder(tmp_path)
    batch_id = await make_batch(store, jsonl(100))
    async with running(store):
        batch = await ended(store, batch_id)
    assert batch["status"] == "completed"
    assert (batch["total"], batch["completed"], batch["failed"]) == (100, 100, 0)
    output = await lines_of(store, batch["output_file_id"])
    assert [each["custom_id"] for each in output] == [f"r{number}" for number in range(100)]
    for each in output:
        assert each["error"] is None
        assert each["response"]["status_code"] == 200
        assert each["response"]["request_id"] == "req_1"
        assert each["response"]["body"] == {"echo": each["custom_id"]}
    assert "error_file_id" not in batch
    await store.close()


async def test_refusals_go_to_the_error_file_and_blank_lines_nowhere(tmp_path: Path) -> None:
    async def ask(owner: str, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        if b"bad" in body:
            return 400, {}, b'{"error": {"message": "no"}}'
        return await echo(owner, path, body)

    asked = [line("good"), line("bad"), line("streamed", body={"stream": True}), line("last")]
    data = b"\xef\xbb\xbf" + b"\n\n".join(json.dumps(each).encode() for each in asked)
    store = open_folder(tmp_path)
    batch_id = await make_batch(store, data)
    async with running(store, ask):
        batch = await ended(store, batch_id)
    assert (batch["total"], batch["completed"], batch["failed"]) == (4, 2, 2)
    output = await lines_of(store, batch["output_file_id"])
    assert [each["custom_id"] for each in output] == ["good", "last"]
    bad, streamed = await lines_of(store, batch["error_file_id"])
    assert (bad["custom_id"], bad["response"]["status_code"]) == ("bad", 400)
    assert bad["response"]["body"] == {"error": {"message": "no"}}
    assert streamed["response"]["body"]["error"]["param"] == "stream"
    await store.close()


@pytest.mark.parametrize(
    ("data", "code", "at", "param"),
    [
        (b"", "empty_file", None, None),
        (b"\n \n", "empty_file", None, None),
        (b"{", "invalid_json_line", 1, None),
        (b"[1]", "invalid_json_line", 1, None),
        (b"[" * 200_000, "invalid_file", 1, None),
        (jsonl(2) + json.dumps(line("r1")).encode(), "duplicate_custom_id", 3, "custom_id"),
        (json.dumps(line("a", url="/v1/x")).encode(), "mismatched_url", 1, "url"),
        (json.dumps(line("a", method="GET")).encode(), "invalid_method", 1, "method"),
        (json.dumps(line("a", body=1)).encode(), "missing_required_parameter", 1, "body"),
        (json.dumps(line("")).encode(), "missing_required_parameter", 1, "custom_id"),
        (json.dumps(line("a" * 513)).encode(), "missing_required_parameter", 1, "custom_id"),
        (b"\n" * 2000, "too_many_requests", None, None),
        (jsonl(1001), "too_many_requests", None, None),
    ],
)
async def test_a_wrong_file_fails_the_batch_with_its_line(
    tmp_path: Path, data: bytes, code: str, at: int | None, param: str | None
) -> None:
    store = open_folder(tmp_path)
    batch_id = await make_batch(store, data)
    async with running(store):
        batch = await ended(store, batch_id)
    assert batch["status"] == "failed"
    error = batch["errors"][0]
    assert (error["code"], error["line"], error["param"]) == (code, at, param)
    await store.close()


async def test_the_requests_of_a_key_are_bounded(tmp_path: Path) -> None:
    store = open_folder(tmp_path)
    gate = asyncio.Event()

    async def ask(owner: str, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        await gate.wait()
        return await echo(owner, path, body)

    limits = replace(LIMITS, key_requests=30)
    async with running(store, ask, limits, owners=("a", "b")):
        first = await make_batch(store, jsonl(20), "a")

        async def begun() -> bool:
            batch = await store.run(store.state.find_batch, "a", first)
            return batch is not None and batch["status"] == "in_progress"

        await until(begun)
        over = await ended(store, await make_batch(store, jsonl(11), "a"), "a")
        assert over["errors"][0]["code"] == "request_limit_exceeded"
        other = await make_batch(store, jsonl(30), "b")
        gate.set()
        assert (await ended(store, first, "a"))["completed"] == 20
        assert (await ended(store, other, "b"))["completed"] == 30
    await store.close()


async def test_no_more_lines_are_asked_at_a_time_than_may_run(tmp_path: Path) -> None:
    store, now, most = open_folder(tmp_path), 0, 0

    async def ask(owner: str, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return await echo(owner, path, body)

    batch_id = await make_batch(store, jsonl(200))
    async with running(store, ask):
        assert (await ended(store, batch_id))["completed"] == 200
    assert most == LIMITS.running
    await store.close()


async def test_a_refusal_for_want_of_room_is_asked_again(tmp_path: Path) -> None:
    store, seen = open_folder(tmp_path), dict[bytes, int]()

    async def ask(owner: str, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        seen[body] = seen.get(body, 0) + 1
        if seen[body] == 1:
            return 429, {"retry-after": "0"}, b"{}"
        if b"stuck" in body:
            return 503, {"retry-after": "0"}, b'{"error": {"code": "compiler_stuck"}}'
        return await echo(owner, path, body)

    data = jsonl(3) + json.dumps(line("stuck")).encode()
    batch_id = await make_batch(store, data)
    async with running(store, ask):
        batch = await ended(store, batch_id)
    assert (batch["completed"], batch["failed"]) == (3, 1)
    [stuck] = await lines_of(store, batch["error_file_id"])
    assert stuck["response"]["status_code"] == 503
    assert sorted(seen.values()) == [2, 2, 2, 6]
    await store.close()


async def test_a_cancelled_batch_has_what_was_answered(tmp_path: Path) -> None:
    store, gate = open_folder(tmp_path), asyncio.Event()

    async def ask(owner: str, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        if b'"r50"' in body or b'"r7' in body:
            await gate.wait()  # forever: these are never answered
        return await echo(owner, path, body)

    batch_id = await make_batch(store, jsonl(100))
    async with running(store, ask) as runner:

        async def stuck() -> bool:
            batch = await store.run(store.state.find_batch, "", batch_id)
            return batch is not None and batch["completed"] > 40

        await until(stuck)
        await store.run(store.state.cancel, batch_id)
        runner.wake()
        batch = await ended(store, batch_id)
    assert batch["status"] == "cancelled"
    output = await lines_of(store, batch["output_file_id"])
    errors = await lines_of(store, batch["error_file_id"])
    names = [each["custom_id"] for each in (*output, *errors)]
    assert sorted(names) == sorted(f"r{number}" for number in range(100))
    assert {each["error"]["code"] for each in errors} == {"batch_cancelled"}
    assert (batch["completed"], batch["failed"]) == (len(output), len(errors))
    await store.close()


async def test_a_batch_that_is_too_late_expires_with_what_was_answered(tmp_path: Path) -> None:
    now = [1_000_000.0]
    store = open_folder(tmp_path, lambda: now[0])

    async def ask(owner: str, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        if b'"r9"' in body:
            await asyncio.get_running_loop().create_future()
        return await echo(owner, path, body)

    batch_id = await make_batch(store, jsonl(10), window=3600)
    async with running(store, ask) as runner:

        async def stuck() -> bool:
            batch = await store.run(store.state.find_batch, "", batch_id)
            return batch is not None and batch["completed"] == 9

        await until(stuck)
        now[0] += 3601
        times = {"upload_seconds": 60, "batch_seconds": 86_400, "response_seconds": 60}
        assert await store.run(store.state.forget_old, **times) == []
        runner.wake()
        batch = await ended(store, batch_id)
    assert (batch["status"], batch["completed"], batch["failed"]) == ("expired", 9, 1)
    [late] = await lines_of(store, batch["error_file_id"])
    assert (late["custom_id"], late["error"]["code"]) == ("r9", "batch_expired")
    await store.close()


async def test_a_server_that_drains_leaves_lines_to_the_next(tmp_path: Path) -> None:
    store, halted, asked = open_folder(tmp_path), [False], list[str]()

    async def ask(owner: str, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        if len(asked) == 20:
            halted[0] = True
        if halted[0]:
            return 503, {"retry-after": "5"}, b"{}"
        asked.append(json.loads(body)["messages"][0]["content"])
        return await echo(owner, path, body)

    batch_id = await make_batch(store, jsonl(100))
    async with running(store, ask, halted=lambda: halted[0]):

        async def drained() -> bool:
            return halted[0]

        await until(drained)
    halted[0] = False
    first = len(asked)
    asked.clear()
    async with running(store):  # no lease delays it
        batch = await ended(store, batch_id)
    assert (batch["completed"], batch["failed"]) == (100, 0)
    assert first == 20
    await store.close()


async def test_keys_take_turns(tmp_path: Path) -> None:
    """A batch of another key does not wait for the end of a large one."""
    store, order = open_folder(tmp_path), list[str]()

    async def ask(owner: str, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        order.append(owner)
        await asyncio.sleep(0.001)
        return await echo(owner, path, body)

    await make_batch(store, jsonl(900), "large")
    small = await make_batch(store, jsonl(20), "small")
    async with running(store, ask, owners=("large", "small")):
        assert (await ended(store, small, "small"))["completed"] == 20
    assert order.count("large") < 500
    await store.close()


async def test_batches_of_removed_keys_do_not_run(tmp_path: Path) -> None:
    store = open_folder(tmp_path)
    gone = await make_batch(store, jsonl(1), "gone")
    here = await make_batch(store, jsonl(1), "here")
    async with running(store, owners=("here",)):
        await ended(store, here, "here")
    batch = await store.run(store.state.find_batch, "gone", gone)
    assert batch is not None
    assert batch["status"] == "validating"
    await store.close()


async def test_two_servers_share_a_batch_and_answer_each_line_once(tmp_path: Path) -> None:
    store, asked = open_folder(tmp_path), list[str]()

    async def ask(owner: str, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        asked.append(json.loads(body)["messages"][0]["content"])
        await asyncio.sleep(0.001)
        return await echo(owner, path, body)

    batch_id = await make_batch(store, jsonl(300))
    async with running(store, ask), running(store, ask):
        batch = await ended(store, batch_id)
    assert batch["completed"] == 300
    assert sorted(asked) == sorted(f"r{number}" for number in range(300))
    await store.close()


async def test_a_piece_goes_to_another_server_when_its_lease_has_ended(tmp_path: Path) -> None:
    now = [1_000_000.0]
    store = open_folder(tmp_path, lambda: now[0])
    batch_id = await make_batch(store, jsonl(40))
    validating = store.state.take("dead", [""], 60)
    assert validating is not None
    async with running(store):
        await asyncio.sleep(0.2)
        batch = await store.run(store.state.find_batch, "", batch_id)
        assert batch is not None
        assert batch["status"] == "validating"
        now[0] += 61
        assert (await ended(store, batch_id))["completed"] == 40
    # The server whose lease has ended cannot change anything.
    store.state.finish(validating, "dead")
    store.state.record([{"batch_id": batch_id, "line": 0, "ok": True, "text": b"{}"}])
    assert store.state.answers_from(batch_id, 0, 10) == []
    await store.close()


async def test_a_line_that_ends_every_server_is_given_up(tmp_path: Path) -> None:
    store = open_folder(tmp_path)
    batch_id = await make_batch(store, jsonl(10))

    deaths = 0
    while True:
        death = asyncio.get_running_loop().create_future()

        async def ask(
            owner: str, path: str, body: bytes, death: asyncio.Future[None] = death
        ) -> tuple[int, Mapping[str, str], bytes]:
            if b'"r4"' in body:
                if not death.done():
                    death.set_result(None)
                await asyncio.get_running_loop().create_future()
            return await echo(owner, path, body)

        # Not ``running``, which closes the runner: a server that dies releases no lease.
        runner = BatchRunner(store, ask, LIMITS, owners=[""], halted=lambda: False)
        runner.start()
        end = asyncio.create_task(ended(store, batch_id))
        await asyncio.wait([death, end], return_when=asyncio.FIRST_COMPLETED)
        if end.done():
            await runner.close()
            break
        await asyncio.sleep(0.05)
        for task in (*runner._loops, *runner._pieces.values(), end):
            task.cancel()
        await asyncio.gather(*runner._loops, return_exceptions=True)
        store.state.release("")  # as the next start does
        deaths += 1
    assert deaths == 6
    batch = end.result()
    assert (batch["completed"], batch["failed"]) == (9, 1)
    [poison] = await lines_of(store, batch["error_file_id"])
    assert (poison["custom_id"], poison["error"]["code"]) == ("r4", "server_error")
    await store.close()


async def test_answers_wait_for_a_store_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, away, asked = open_folder(tmp_path), [False], list[str]()
    record = store.state.record

    def fails(rows: Any) -> None:
        if away[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        record(rows)

    monkeypatch.setattr(store.state, "record", fails)

    async def ask(owner: str, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        asked.append(json.loads(body)["messages"][0]["content"])
        away[0] = len(asked) == 10 or away[0]
        return await echo(owner, path, body)

    batch_id = await make_batch(store, jsonl(40))
    async with running(store, ask):

        async def failing() -> bool:
            return away[0]

        await until(failing)
        await asyncio.sleep(0.1)
        assert len(asked) <= 10 + LIMITS.running
        away[0] = False
        assert (await ended(store, batch_id))["completed"] == 40
    assert sorted(asked) == sorted(f"r{number}" for number in range(40))
    await store.close()


async def test_a_full_disk_is_a_clear_error_and_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_folder(tmp_path)
    before = await make_batch(store, jsonl(3))

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnavailable, match=r"store is full .*LEAPJSON_DATA"):
        await make_batch(store, jsonl(3))
    monkeypatch.undo()
    assert not list((tmp_path / "files").glob("*.part"))
    async with running(store):
        assert (await ended(store, before))["completed"] == 3
    await store.close()


async def test_a_server_that_is_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    store: Store | None = open_folder(tmp_path)
    assert store is not None
    lines = many(1000, 4)
    batch_id = await make_batch(store, jsonl(lines))
    await store.close()
    log = tmp_path / "log"
    log.touch()
    for kills in range(many(8)):
        process = Forked(run_to_the_end, tmp_path, batch_id, log)
        enough, deadline = len(log.read_bytes()) // 6 + 40 + 17 * kills, time.monotonic() + 120
        while len(log.read_bytes()) // 6 < enough and process.poll() is None:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    store = open_folder(tmp_path)
    async with running(store):
        batch = await ended(store, batch_id)
    assert (batch["completed"], batch["failed"]) == (lines, 0)
    output = await lines_of(store, batch["output_file_id"])
    assert [each["custom_id"] for each in output] == [f"r{number}" for number in range(lines)]
    await store.close()
