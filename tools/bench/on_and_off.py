"""Effect of leaps or of drafts on the demo model's answers, and forward passes that they save.

``python -m tools.bench.on_and_off leap`` (or ``draft``) sends held-out demo tasks with the same
seeds, with leaps and without, at temperature 0 and 0.8. It reports equal texts and equal JSON,
fields exactly right, tokens and forward passes an answer, and all answers that differ. With
``draft`` all tasks of a kind have the first one's schema, as drafts come from other answers to it;
no task comes twice, and fields are not compared.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Sequence

import httpx

from loadtest.tables import heading, table_row
from tools.bench.demo_answers import Reply, ask_all, demo_server
from tools.demo_model.corpus import Example, Kind, examples
from tools.demo_model.records import agreeing, fields

KINDS: tuple[Kind, ...] = ("character", "contact", "invoice", "event", "review", "city", "notes")
COLUMNS = (
    "kind", "temperature", "same text", "same JSON", "fields right", "tokens", "leapt", "drafted",
    "passes", "passes without", "tokens a pass",
)  # fmt: skip


async def report(url: str, option: str, count: int, clients: int) -> None:
    print(heading(COLUMNS))
    different = []
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        for kind in KINDS:
            tasks = list(examples(kind, 2 * count, 5, "held_out"))
            for temperature, some in ((0.0, tasks[:count]), (0.8, tasks[count:])):
                schemas = [(tasks[0] if option == "draft" else task).schema for task in some]
                on, off = [
                    await ask_all(
                        client, some, schemas, clients, temperature=temperature, **{option: value}
                    )
                    for value in (True, False)
                ]
                # Characters are made up: none of their fields is right or wrong.
                compared = () if option == "draft" or kind == "character" else some
                print(_row(kind, temperature, on, off, fields_right(compared, on)), flush=True)
                different += [
                    f"\n{kind} at temperature {temperature}:\n  on   {a.text}\n  off  {b.text}"
                    for a, b in zip(on, off, strict=True)
                    if a.text != b.text
                ]
        metrics = (await client.get("/metrics")).text
    proposed, accepted = (
        _value(metrics, name) for name in ("draft_tokens_total ", 'tokens_total{source="drafted"} ')
    )
    print(f"\nof {proposed:.0f} drafted tokens {accepted / proposed:.0%} were accepted")
    print(*different, sep="\n")


def fields_right(tasks: Sequence[Example], replies: Sequence[Reply]) -> str:
    right = total = 0
    for task, reply in zip(tasks, replies, strict=False):
        expected = fields(task.answer)
        right += agreeing(expected, fields(reply.answer))
        total += len(expected)
    return f"{right / total:.1%} of {total}" if total else ""


def _row(
    kind: str, temperature: float, on: Sequence[Reply], off: Sequence[Reply], right: str
) -> str:
    pairs = list(zip(on, off, strict=True))
    tokens, leapt, drafted, passes = (
        statistics.fmean(values)
        for values in zip(*((r.tokens, r.leapt, r.drafted, r.passes) for r in on), strict=True)
    )
    without = statistics.fmean(reply.passes for reply in off)
    cells = (f"{each:.1f}" for each in (tokens, leapt, drafted, passes, without, tokens / passes))
    same = (
        f"{sum(a.text == b.text for a, b in pairs)}/{len(pairs)}",
        f"{sum(a.answer == b.answer for a, b in pairs)}/{len(pairs)}",
    )
    return table_row((kind, temperature, *same, right, *cells))


def _value(metrics: str, name: str) -> float:
    lines = (line.removeprefix("leapjson_") for line in metrics.splitlines())
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("option", choices=["leap", "draft"])
    parser.add_argument("--count", type=int, default=20, help="tasks of each kind and temperature")
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    with demo_server() as url:
        asyncio.run(report(url, options.option, options.count, options.clients))


if __name__ == "__main__":
    main()
