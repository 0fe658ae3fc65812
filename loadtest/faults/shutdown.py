"""SIGTERM under load: accepted requests are answered, later ones are refused."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter

from loadtest.faults.client import CHAT as PATH
from loadtest.faults.client import BrokenAnswerError, Exchange, chat, connect, regex, request
from loadtest.faults.findings import Report
from loadtest.faults.setting import Setting
from loadtest.faults.watch import until

CLIENTS = 48
UNANSWERED = "LOST without an answer"


async def run(setting: Setting, report: Report) -> None:
    outcomes: Counter[str] = Counter()
    seconds, exits = [], []
    rng = random.Random(0)
    rounds = setting.count(20)
    for number in range(rounds):
        with setting.server(max_running="16", drain_seconds="60") as server:
            stop, terminating = asyncio.Event(), asyncio.Event()
            clients = [
                asyncio.create_task(_client(server.url, rng.random(), stop, terminating, outcomes))
                for _ in range(CLIENTS)
            ]
            await asyncio.sleep(1 + rng.random() * 2)
            start = time.perf_counter()
            terminating.set()
            server.process.send_signal(signal.SIGTERM)
            await until(lambda: server.process.poll() is not None, 90)
            seconds.append(time.perf_counter() - start)
            exits.append(server.process.poll())
            stop.set()
            await asyncio.gather(*clients)
        report.note(f"round {number + 1}: drained in, s", seconds[-1])
    report.note("rounds", rounds)
    for outcome, times in sorted(outcomes.items()):
        report.note(outcome, times)
    lost = sum(times for outcome, times in outcomes.items() if outcome.startswith("LOST"))
    report.equal("accepted requests lost", lost, 0)
    report.equal("exit statuses", set(exits), {0})
    report.note("longest drain, s", max(seconds))


async def _client(
    url: str, seed: float, stop: asyncio.Event, terminating: asyncio.Event, outcomes: Counter[str]
) -> None:
    """Send requests, each on a new connection, until the server accepts no connections."""
    rng = random.Random(seed)
    while not stop.is_set():
        late = terminating.is_set()
        outcome = await _ask(url, rng)
        if late and outcome == UNANSWERED:
            outcome = "closed without an answer, sent after SIGTERM"
        outcomes[outcome] += 1
        if outcome == "no connection":
            return
        if outcome == "503":
            await asyncio.sleep(0.2)


async def _ask(url: str, rng: random.Random) -> str:
    low = rng.choice([20, 100, 400])
    stream = rng.random() < 0.5
    pattern = regex(f"[a-z ]{{{low},{low + 50}}}")
    body = chat("Hello!", response_format=pattern, max_tokens=600, stream=stream)
    try:
        exchange = await connect(url)
    except OSError:
        return "no connection"
    try:
        exchange.writer.write(request(PATH, body))
        return await _outcome(exchange, stream)
    finally:
        exchange.abort()


async def _outcome(exchange: Exchange, stream: bool) -> str:
    """The status, or "LOST ..." if an accepted request has no complete answer."""
    try:
        status = await exchange.head()
    except BrokenAnswerError:
        return UNANSWERED
    if status != 200:
        await exchange.body()
        return str(status)
    try:
        if not stream:
            await exchange.body()
            return "200"
        async for data in exchange.events():
            if data.startswith('{"error"'):
                return "LOST to an error"
        return "200"
    except BrokenAnswerError:
        return "LOST in the middle"
