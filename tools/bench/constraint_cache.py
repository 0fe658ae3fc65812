"""Thousands of distinct schemas through one process: does its memory stay bounded?

Measures the constraint cache alone, without a server or a model; the soak of a server is
``python -m loadtest.faults soak``.

``python -m tools.bench.constraint_cache`` compiles variants of real schemas (their properties
renamed) in worker processes, keeps them in the server's own cache, and walks a random answer
through each, as an engine would. It prints a Markdown table of memory over time."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from app.constraint import Compiler
from app.core.constraint import Constraint, ConstraintSpec, Vocabulary
from app.core.errors import ConstraintError, DrawAgain
from app.core.progress import reporting
from app.core.request import ServiceTier
from app.core.specs import JsonSchema
from app.demo import MODEL_PATH
from app.serving.compiling.cache import ConstraintCache
from app.serving.workers.pool import WorkerLimits, WorkerPool
from app.terminal.screen import open_screen
from app.text import Vocabulary as TextVocabulary
from loadtest.faults.watch import resident
from loadtest.schemas import distinct_schemas
from loadtest.tables import heading, table_row
from tools import datasets

COLUMNS = (
    "schemas", "seconds", "resident MiB", "cache MiB", "kept", "evicted", "states", "masks",
)  # fmt: skip


class NoObserver:
    """An observer that counts nothing."""

    def observe_request(self, stats: Any) -> None: ...

    def observe_compile(self, kind: str, result: str, seconds: float) -> None: ...


def walk(constraint: Constraint, vocabulary: Vocabulary, tokens: int, rng: random.Random) -> int:
    """Walk a random answer of up to ``tokens`` tokens, with leaps; returns the tokens drawn."""
    state = constraint.start()
    for taken in range(tokens):
        if forced := state.forced():
            state.accept_bytes(forced)
        mask = state.mask(budget=max(tokens - taken, state.shortest_tokens()))
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        token = int(rng.choice(allowed)) if len(allowed) else None
        if token is None or token in vocabulary.eos_ids:
            return taken
        with suppress(DrawAgain):  # as in the engine, the next step draws again
            state.accept(token)
    return tokens


async def fill(arguments: argparse.Namespace) -> None:
    tokenizer = json.loads(datasets.tokenizer_json(arguments.tokenizer))
    vocabulary = TextVocabulary.from_json(tokenizer, arguments.eos)
    compiler = Compiler(vocabulary)
    pool = WorkerPool("app.constraint:compile_program", workers=2, limits=WorkerLimits())
    await pool.start()

    async def compile(spec: ConstraintSpec, tenant: str, tier: ServiceTier) -> Constraint:
        return compiler.link(await pool.run(spec, tenant, tier))

    cache = ConstraintCache(
        compile,
        max_bytes=arguments.cache_mib << 20,
        observer=NoObserver(),
        clock=time.perf_counter,
    )
    results: Counter[str] = Counter()
    rng = random.Random(0)
    print(heading(COLUMNS))
    started, most = time.perf_counter(), 0.0
    progress, numbers = open_screen(sys.stderr).progress, range(1, arguments.count + 1)
    counted = reporting(progress, "walking", numbers, unit="schemas")
    for number, schema in zip(counted, distinct_schemas(arguments.schemas), strict=False):
        try:
            constraint = await cache.get(JsonSchema(schema, close_objects=True))
            await asyncio.to_thread(walk, constraint, vocabulary, arguments.tokens, rng)
            results["walked"] += 1
        except ConstraintError as error:
            results[error.code] += 1
        most = max(most, resident(os.getpid()))
        if number % arguments.every == 0 or number == 1:
            row = (
                number,
                round(time.perf_counter() - started),
                round(resident(os.getpid())),
                cache.nbytes >> 20,
                len(cache),
                cache.evictions,
                cache.num_states,
                cache.num_masks,
            )
            print(table_row(row), flush=True)
    print(f"\nmost resident: {most:.0f} MiB; {dict(results)}")
    await cache.tasks.close()
    await pool.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemas", type=Path, default=datasets.MASKBENCH)
    parser.add_argument("--tokenizer", type=Path, default=MODEL_PATH, help="folder of a tokenizer")
    parser.add_argument("--eos", type=int, nargs="+", default=[4], help="ids of end of sequence")
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--tokens", type=int, default=32, help="maximum tokens of a walk")
    parser.add_argument("--cache-mib", type=int, default=256)
    parser.add_argument("--every", type=int, default=250, help="schemas between two rows")
    asyncio.run(fill(parser.parse_args()))


if __name__ == "__main__":
    main()
