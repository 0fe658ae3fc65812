"""LMSYS's character and city tasks: leap on, leap off, and free text of the same length.

``python -m tools.bench.lmsys`` starts one server on a 160M-parameter model of Llama's shape with
random weights (``--demo`` takes the embedded demo model) and compares the three in turn within one
run; "free text" is unconstrained text of as many tokens as the leap's answers have.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from loadtest.drive import Closed
from loadtest.measure import Plan, measure
from loadtest.report import report, write
from loadtest.server import running_server
from loadtest.tables import ratio_table, summary_table
from loadtest.targets import arm, target
from loadtest.workloads import workload
from tools import datasets
from tools.bench.model_folder import write_llama_160m


def answer_length(plan: Plan, logs: Path) -> int:
    """Average tokens of an answer."""
    short = replace(plan, arms=plan.arms[:1], loads=[Closed(4)], repeats=1, requests=8)
    (rounds,) = measure(short, logs=logs).rounds.values()
    return round(statistics.mean(answer.tokens for each in rounds for answer in each.answers))


def compare(
    url: str, clients: Sequence[int], repeats: int, requests: int, logs: Path, out: Path | None
) -> str:
    """The tables; the whole report is written to ``out``, if given."""
    server = target(url)
    leap = arm("leap", server, "leapjson", body={"leap": True})
    plain = arm("no leap", server, "leapjson", body={"leap": False})
    plan = Plan(
        arms=[leap, plain],
        workloads=[workload("lmsys")],
        loads=[Closed(count) for count in clients],
        repeats=repeats,
        requests=requests,
        warm_up=8,
        run=datetime.now(UTC).isoformat(),
    )
    free = workload(f"free:{answer_length(plan, logs)}")
    plan = replace(plan, arms=[leap, plain, arm("free text", server, "leapjson", instead=free)])
    results = measure(plan, logs=logs)
    tables = []
    for baseline in ("no leap", "free text"):
        finished = report(results, {"command": "python -m tools.bench.lmsys"}, baseline)
        tables.append(ratio_table([c for c in finished.comparisons if c.arm == "leap"]))
    if out is not None:
        write(finished, out)
    return "\n\n".join([summary_table(finished.summaries), *tables])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--requests", type=int, default=8, help="per round, at least 2 a client")
    parser.add_argument("--tokenizer", type=Path, default=datasets.GPT2)
    parser.add_argument("--demo", action="store_true", help="use the demo model")
    parser.add_argument("--out", type=Path, help="folder for CSV and JSON")
    arguments = parser.parse_args()
    settings = {"SERVED_MODEL_NAME": "bench", "MAX_RUNNING": "64"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = None if arguments.demo else folder / "llama-160m"
        if model is not None:
            write_llama_160m(model, arguments.tokenizer)
            settings["RANDOM_WEIGHTS"] = "true"
        with running_server(model, folder / "server.log", settings) as server:
            options = (arguments.clients, arguments.repeats, arguments.requests)
            print(compare(server.url, *options, folder, arguments.out))


if __name__ == "__main__":
    main()
