"""Cost of a schema by its size: compile time, look-up, masks, time to first token."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.constraint import Compiler
from app.constraint.program import compile_program, everyday_schema
from app.core.constraint import Constraint, ConstraintSpec
from app.core.errors import ConstraintError, ConstraintTooComplex
from app.core.specs import JsonSchema
from app.serving.compiling.cache import ConstraintCache
from loadtest.schemas import distinct, strict_object
from loadtest.tables import table
from tools.bench.constraint_cache import NoObserver
from tools.bench.costs.asking import CHAT, Client, RefusedError
from tools.bench.costs.stepping import Words

COLUMNS = (
    "schema", "bytes", "compile CPU ms", "look-up us", "states", "cache KiB", "first mask us",
    "later mask us", "first mask near the budget us", "first token ms, new",
    "first token ms, known",
)  # fmt: skip
COMPILE_SECONDS = 2.0
"""Seconds of compiling after which no further variant is compiled."""
LOOKUPS = 20
ROOM = 1 << 20
"""Tokens of budget beyond the shortest answer, so many that no mask is narrowed."""
TIGHT = 16
MAX_TIGHT_MASKS = 20
"""Maximum number of masks that are timed with ``TIGHT`` tokens to spare."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """A schema and a valid answer to it."""

    name: str
    schema: Json
    answer: Json


@dataclass(frozen=True, slots=True)
class Extent:
    properties: Sequence[int]
    values: Sequence[int]
    """Numbers of values of the enums."""
    repeats: int


@dataclass(frozen=True, slots=True)
class SchemaCost:
    """Medians, times in seconds."""

    compile: float
    """Processor time, in a process that has compiled before."""
    lookup: float
    """Processor time of a look-up in the server's cache, for a specification that was just read."""
    states: int
    """States visited by one whole answer."""
    nbytes: int
    """Bytes held for those states and their masks."""
    first_mask: float
    """Mean; the mask of each new state is computed."""
    later_mask: float
    tight_mask: float | None
    """Mean with few tokens to spare, including the distance to the nearest end. None: it takes more
    work than a call may."""


def wide(properties: int) -> Sample:
    """An object with this number of properties: strings, integers, enums, objects."""
    members: dict[str, Json] = {}
    answer: Json = {}
    for number in range(properties):
        name, (members[name], answer[name]) = f"field {number}", _member(number)
    plural = "property" if properties == 1 else "properties"
    return Sample(f"{properties:,} {plural}", strict_object(members), answer)


def _member(number: int) -> tuple[Json, Any]:
    kinds: Sequence[tuple[Json, Any]] = (
        ({"type": "string"}, f"text {number}"),
        ({"type": "integer"}, number),
        ({"enum": [f"{colour} {number}" for colour in ("red", "green", "blue")]}, f"red {number}"),
        ({"type": "string", "maxLength": 40}, f"some text {number}"),
        (
            strict_object({"amount": {"type": "number"}, "unit": {"enum": ["g", "kg", "t"]}}),
            {"amount": number + 0.5, "unit": "kg"},
        ),
    )
    return kinds[number % len(kinds)]


def long_enum(values: int) -> Sample:
    """A property that is an enum of this number of values, and another property after it."""
    listed = [f"value {number * 7919 % 1_000_003}" for number in range(values)]
    schema = strict_object({"choice": {"enum": listed}, "note": {"type": "string"}})
    return Sample(f"enum of {values:,}", schema, {"choice": listed[-1], "note": "none"})


def samples(extent: Extent) -> list[Sample]:
    return [*map(wide, extent.properties), *map(long_enum, extent.values)]


def costs(sample: Sample, words: Words, compiler: Compiler, repeats: int) -> SchemaCost:
    """Measure ``sample``. Raises ConstraintError if the schema is refused."""
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < COMPILE_SECONDS:
        variant = JsonSchema(distinct(sample.schema, f" {len(seconds)}"), close_objects=True)
        start = time.thread_time()
        compile_program(variant)
        seconds.append(time.thread_time() - start)
    spec = JsonSchema(sample.schema, close_objects=True)
    constraint = compiler.compile(spec)
    tokens = words.tokenizer.encode(json.dumps(sample.answer))
    firsts, laters = (mask_times(constraint, tokens, ROOM) for _ in range(2))
    return SchemaCost(
        compile=statistics.median(seconds),
        lookup=asyncio.run(lookup_time(sample.schema, constraint)),
        states=constraint.num_states,
        nbytes=constraint.nbytes,
        first_mask=statistics.mean(firsts),
        later_mask=statistics.median(laters),
        tight_mask=tight_mask(compiler.compile(spec), tokens),
    )


def tight_mask(constraint: Constraint, tokens: Sequence[int]) -> float | None:
    try:
        return statistics.mean(mask_times(constraint, tokens, TIGHT, MAX_TIGHT_MASKS))
    except ConstraintTooComplex:
        return None


def mask_times(
    constraint: Constraint, tokens: Sequence[int], spare: int, most: int | None = None
) -> list[float]:
    """Seconds of each mask that the answer ``tokens`` needs: none for forced tokens.

    The budget of each mask leaves ``spare`` tokens; at most ``most`` masks are timed.
    """
    state = constraint.start()
    found: list[float] = []
    for token in tokens:
        if not state.forced():
            start = time.perf_counter()
            shortest = 0 if spare >= ROOM else state.shortest_tokens()
            state.mask(budget=shortest + spare)
            found.append(time.perf_counter() - start)
            if len(found) == most:
                break
        state.accept(token)
    return found


async def lookup_time(schema: Json, constraint: Constraint) -> float:
    async def known(spec: ConstraintSpec, *_: object) -> Constraint:
        return constraint

    cache = ConstraintCache(
        known, max_bytes=1 << 40, observer=NoObserver(), clock=time.perf_counter
    )
    await cache.get(JsonSchema(schema, close_objects=True))
    found = []
    for _ in range(LOOKUPS):
        start = time.thread_time()
        await cache.get(JsonSchema(schema, close_objects=True))
        found.append(time.thread_time() - start)
    return statistics.median(found)


def first_token_cells(client: Client, sample: Sample, repeats: int) -> list[str]:
    """Milliseconds, or "refused" if the server refuses the schema."""
    variants = [distinct(sample.schema, f" {number}") for number in range(repeats)]
    requests = [_request(schema) for schema in variants for _ in range(2)]
    try:
        seconds = client.first_tokens(CHAT, requests)
    except RefusedError:
        return ["refused", ""]
    return [f"{1e3 * statistics.median(some):.1f}" for some in (seconds[::2], seconds[1::2])]


def _request(schema: Json | None) -> Json:
    """A request whose answer is truncated: one to a large schema would not fit into the model."""
    fields: Json = {
        "messages": [{"role": "user", "content": "Give me an example, please."}],
        "max_tokens": 8,
        "on_budget": "truncate",
    }
    if schema is not None:
        content = {"name": "answer", "schema": schema, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": content}
    return fields


def schema_table(client: Client, words: Words, extent: Extent) -> str:
    compile_program(everyday_schema())  # as the server's workers do before their first request
    compiler = Compiler(words.vocabulary)
    client.first_tokens(CHAT, [_request(wide(3).schema), _request(None)])
    free = client.first_tokens(CHAT, [_request(None)] * (2 * extent.repeats))
    rows = [["none", *[""] * 9, f"{1e3 * statistics.median(free):.1f}"]]
    for sample in samples(extent):
        try:
            cost = costs(sample, words, compiler, extent.repeats)
        except ConstraintError as error:
            rows.append([sample.name, f"refused: {error.code}", *[""] * 9])
            continue
        rows.append(
            [
                sample.name,
                f"{len(json.dumps(sample.schema)):,}",
                f"{1e3 * cost.compile:.1f}",
                f"{1e6 * cost.lookup:.0f}",
                f"{cost.states:,}",
                f"{cost.nbytes / 1024:,.0f}",
                f"{1e6 * cost.first_mask:.0f}",
                f"{1e6 * cost.later_mask:.2f}",
                "too much" if cost.tight_mask is None else f"{1e6 * cost.tight_mask:.0f}",
                *first_token_cells(client, sample, extent.repeats),
            ]
        )
    return table(COLUMNS, rows)
