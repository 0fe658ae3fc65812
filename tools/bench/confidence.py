"""Quality and cost of ``confidence`` on the demo model: does it tell right values from wrong ones?

``python -m tools.bench.confidence`` sends held-out demo tasks at temperature 0, each three times:
plain, with confidence, and with confidence and exact choices. Every value of an answer is compared
with the true one. For each kind of value it prints the accuracy, the expected calibration error (in
ten bins of equal width: Guo et al., "On Calibration of Modern Neural Networks", 2017) and the
accuracy of the values with the highest confidence.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import httpx

from loadtest.tables import heading, table_row
from tools.bench.demo_answers import Reply, ask, demo_server
from tools.demo_model.corpus import Kind, examples

KINDS: tuple[Kind, ...] = ("character", "contact", "invoice", "event", "review", "city")
COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.5)
BINS = 10
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "confidence": {"confidence": True},
    "exact": {"confidence": True, "choices": "exact"},
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A value of an answer: its confidence, and whether it is right."""

    kind: str
    probability: float
    right: bool


Found = dict[str, list[tuple[Reply, Sequence[Judged]]]]
"""Replies and their values by entry of ``VARIANTS``."""


def judged(entry: dict[str, Any], truth: Any) -> Judged:
    """Compare an entry of ``confidence`` with the true value at its pointer."""
    value = entry["value"]
    kind = "of a finite set"
    if "tokens" in entry:
        kind = "strings" if isinstance(value, str) else "numbers"
    return Judged(kind, entry["probability"], _at(truth, entry["pointer"]) == value)


def _at(truth: Any, pointer: str) -> Any:
    """Value at a JSON Pointer; an object that equals nothing if there is none."""
    for name in pointer.split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(truth, dict) and name in truth:
            truth = truth[name]
        elif isinstance(truth, list) and int(name) < len(truth):
            truth = truth[int(name)]
        else:
            return object()
    return truth


def bins(values: Sequence[Judged]) -> list[list[Judged]]:
    """Values in ``BINS`` bins of equal width by probability."""
    found: list[list[Judged]] = [[] for _ in range(BINS)]
    for each in values:
        found[min(int(each.probability * BINS), BINS - 1)].append(each)
    return found


def accuracy(values: Sequence[Judged]) -> float:
    return sum(each.right for each in values) / len(values)


def calibration_error(values: Sequence[Judged]) -> float:
    """Mean over values of the distance between accuracy and mean probability in their bin."""
    error = 0.0
    for some in bins(values):
        if some:
            sure = statistics.fmean(each.probability for each in some)
            error += abs(accuracy(some) - sure) * len(some)
    return error / len(values)


def at_coverage(values: Sequence[Judged], coverage: float) -> float:
    """Accuracy of the share ``coverage`` of values with the highest probability."""
    surest = sorted(values, key=lambda each: -each.probability)
    return accuracy(surest[: max(1, round(coverage * len(values)))])


async def replies(url: str, count: int) -> Found:
    """Replies to all tasks and their values, one after another, with every entry of ``VARIANTS``.

    A first request of each task compiles its schema; the order of the entries rotates by task.
    """
    found: Found = {name: [] for name in VARIANTS}
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        for kind in KINDS:
            for number, example in enumerate(examples(kind, count, 7, "held_out")):
                given = (client, example, example.schema)
                await ask(*given, temperature=0)
                names = [*VARIANTS]
                for place in range(len(names)):
                    name = names[(number + place) % len(names)]
                    reply = await ask(*given, temperature=0, **VARIANTS[name])
                    values = [
                        judged(each, example.answer) for each in reply.confidence if "value" in each
                    ]
                    found[name].append((reply, values))
    return found


def report(found: Found) -> None:
    """Print the tables."""
    print(heading(("asked", "ms an answer", "passes", "right values of finite sets")))
    for name, some in found.items():
        milliseconds = statistics.median(reply.seconds for reply, _ in some) * 1e3
        passes = statistics.fmean(reply.passes for reply, _ in some)
        finite = [v for _, values in some for v in values if v.kind == "of a finite set"]
        right = f"{accuracy(finite):.1%}" if finite else ""
        print(table_row((name, f"{milliseconds:.0f}", f"{passes:.1f}", right)))
    values = [value for _, values in found["confidence"] for value in values]
    print()
    covered = [f"right of the surest {coverage:.0%}" for coverage in COVERAGES[1:]]
    print(heading(("values", "how many", "right", "calibration error", *covered)))
    for kind in ("of a finite set", "strings", "numbers", "all"):
        of_kind = [each for each in values if kind in (each.kind, "all")]
        if of_kind:
            shares = [f"{at_coverage(of_kind, coverage):.1%}" for coverage in COVERAGES]
            cells = (len(of_kind), shares[0], f"{calibration_error(of_kind):.3f}", *shares[1:])
            print(table_row((kind, *cells)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="tasks of each kind")
    parser.add_argument("--url", help="running server with the demo model in float32")
    options = parser.parse_args()
    with nullcontext(options.url) if options.url else demo_server() as url:
        report(asyncio.run(replies(url, options.count)))


if __name__ == "__main__":
    main()
