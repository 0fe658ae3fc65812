"""Effect of ``x-verbatim`` on the demo model's extractions: right fields, invented values, passes.

``python -m tools.bench.verbatim_effect`` sends held-out demo tasks at temperatures 0 and 0.8, each
with its own schema, and again with ``x-verbatim: "words"`` on the strings that are quotes: those
whose values occur in the user's text in all of 200 training examples of the kind. It reports the
share of such fields that are right, the number of their values that do not occur in the text, and
forward passes an answer, with drafts and without."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from loadtest.tables import heading, table_row
from tools.bench.demo_answers import Reply, ask_all, demo_server
from tools.demo_model.corpus import Example, Kind, examples

KINDS: tuple[Kind, ...] = ("contact", "invoice", "event", "city", "character")
COLUMNS = (
    "kind", "temperature", "schema", "fields right", "invented", "tokens", "passes",
    "passes without drafts",
)  # fmt: skip


@dataclass(slots=True)
class Score:
    fields: int = 0
    right: int = 0
    invented: int = 0

    def add(self, task: Example, answer: Any, schema: Any) -> None:
        """``schema``: the task's schema with the keyword on the fields that count."""
        marked = set(paths(schema))
        expected = dict(strings(task.answer))
        found = dict(strings(answer))
        text = user_text(task)
        for path, value in expected.items():
            if _general(path) in marked:
                self.fields += 1
                self.right += found.get(path) == value
        self.invented += sum(
            value not in text for path, value in found.items() if _general(path) in marked
        )


def user_text(task: Example) -> str:
    return "\n".join(m["content"] for m in task.messages if m["role"] == "user")


def strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """All strings of an answer, by path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for key, member in members:
            yield from strings(member, f"{path}/{key}")


def _general(path: str) -> str:
    """A path with ``*`` for each index of an item."""
    return "/".join("*" if step.isdecimal() else step for step in path.split("/"))


def paths(schema: Any, path: str = "") -> Iterator[str]:
    """Paths of the strings with the keyword."""
    if "x-verbatim" in schema:
        yield path
    for name, child in schema.get("properties", {}).items():
        yield from paths(child, f"{path}/{name}")
    if isinstance(schema.get("items"), dict):
        yield from paths(schema["items"], f"{path}/*")


def quoted(kind: Kind) -> frozenset[str]:
    """Paths of strings that always occur in the user's text."""
    always: dict[str, bool] = {}
    for task in examples(kind, 200, 1, "train"):
        for path, value in strings(task.answer):
            name = _general(path)
            always[name] = always.get(name, True) and value in user_text(task)
    return frozenset(path for path, each in always.items() if each)


def with_verbatim(schema: Any, marked: frozenset[str], path: str = "") -> Any:
    """``schema`` with the keyword on the strings at ``marked`` paths."""
    if schema.get("type") == "string" and "enum" not in schema and path in marked:
        return {**schema, "x-verbatim": "words", "minLength": 1}
    changed = dict(schema)
    if "properties" in schema:
        changed["properties"] = {
            name: with_verbatim(child, marked, f"{path}/{name}")
            for name, child in schema["properties"].items()
        }
    if isinstance(schema.get("items"), dict):
        changed["items"] = with_verbatim(schema["items"], marked, f"{path}/*")
    return changed


async def report(url: str, count: int, clients: int) -> None:
    print(heading(COLUMNS))
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        for kind in KINDS:
            marked, tasks = quoted(kind), list(examples(kind, count, 9, "held_out"))
            plain = [task.schema for task in tasks]
            schemas = {"plain": plain, "verbatim": [with_verbatim(s, marked) for s in plain]}
            for temperature in (0.0, 0.8):
                for name, asked in schemas.items():
                    on, off = [
                        await ask_all(
                            client, tasks, asked, clients, temperature=temperature, draft=draft
                        )
                        for draft in (True, False)
                    ]
                    score = Score()
                    for task, reply, schema in zip(tasks, on, schemas["verbatim"], strict=True):
                        score.add(task, reply.answer, schema)
                    print(_row(kind, temperature, name, score, on, off), flush=True)


def _row(
    kind: str, temperature: float, name: str, score: Score, on: list[Reply], off: list[Reply]
) -> str:
    right = f"{score.right / max(1, score.fields):.1%} of {score.fields}"
    figures = (
        sum(reply.tokens for reply in on) / len(on),
        sum(reply.passes for reply in on) / len(on),
        sum(reply.passes for reply in off) / len(off),
    )
    cells = (f"{figure:.1f}" for figure in figures)
    return table_row((kind, temperature, name, right, score.invented, *cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="tasks of each kind")
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    with demo_server() as url:
        asyncio.run(report(url, options.count, options.clients))


if __name__ == "__main__":
    main()
