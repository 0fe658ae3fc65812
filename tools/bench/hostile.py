"""Answers in flight while hostile and huge schemas arrive.

``python -m tools.bench.hostile`` starts one server (the demo model), keeps 16 streams decoding, and
times the gaps between their chunks: first alone, then while another process sends 50 hostile
and 50 huge schemas, then alone again. It prints both distributions with their ratio, and the
response to each attack.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import httpx

from loadtest.server import running_server
from loadtest.tables import table
from tools.bench.hostile_schemas import Attack, hostile, huge
from tools.bench.streams import MODEL, Measurement, Outcome, gaps_table, measure, prepared


def prepare(hostile_count: int, huge_count: int) -> int:
    """Build the attacks in this process; returns their total bytes."""
    os.nice(10)  # real attackers do not use the server's processors
    attacks = [*hostile(hostile_count), *huge(huge_count)]
    # Alternate between the halves: the huge ones arrive among the hostile ones.
    half = (len(attacks) + 1) // 2
    order = [each for pair in zip(attacks[:half], attacks[half:], strict=False) for each in pair]
    order += attacks[len(attacks) - half : half]
    prepared.extend((attack.name, _body(attack)) for attack in order)
    return sum(len(body) for _, body in prepared)


def _body(attack: Attack) -> bytes:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": attack.prompt}],
        "response_format": attack.response_format,
        "max_tokens": 8,
        "on_budget": "truncate",  # so that masks of huge constraints are computed, too
    }
    return json.dumps(body).encode()


def report(measurement: Measurement) -> str:
    rows = []
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in measurement.outcomes:
        groups["huge" if outcome.name.startswith("huge ") else outcome.name].append(outcome)
    for name, group in groups.items():
        answers = sorted({f"{outcome.status} {outcome.code}" for outcome in group})
        slowest = max(outcome.seconds for outcome in group)
        rows.append((name, len(group), ", ".join(answers), f"{slowest:.2f}"))
    unclear = [each for each in measurement.outcomes if each.status == 0 or each.status >= 500]
    return "\n".join(
        [
            gaps_table(measurement, "attacked"),
            "",
            table(("attack", "sent", "answers", "slowest s"), rows),
            "",
            f"{len(measurement.outcomes)} attacks, {len(unclear)} without a clear answer",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--hostile", type=int, default=50)
    parser.add_argument("--huge", type=int, default=50)
    parser.add_argument("--clients", type=int, default=8, help="attacks in flight at a time")
    parser.add_argument("--seconds", type=float, default=10.0, help="quiet time around each round")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of attacks")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor,
        running_server(None, Path(folder) / "server.log", {"SERVED_MODEL_NAME": MODEL}) as server,
    ):
        total = executor.submit(prepare, arguments.hostile, arguments.huge).result()
        print(f"attacks prepared: {total / 1e6:.1f} MB", flush=True)
        measured = asyncio.run(
            measure(
                server.url,
                executor,
                arguments.streams,
                arguments.clients,
                arguments.seconds,
                arguments.rounds,
            )
        )
        metrics = httpx.get(f"{server.url}/metrics").text
    print(report(measured))
    wanted = ("leapjson_schema_cache", "leapjson_step_seconds_sum", "leapjson_step_seconds_count")
    print("\n".join(line for line in metrics.splitlines() if line.startswith(wanted)))


if __name__ == "__main__":
    main()
