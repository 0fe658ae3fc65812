"""Effect of packed weights on a step of the runner alone.

Packing also enables the fused layers, if a model's shape allows them: see ``app.model``.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from app.core.request import SamplingParams
from app.core.step import Draw, Runner, Span
from app.model.composition import load_runner
from loadtest.tables import table
from tools.bench.costs.stepping import Words, model_config

COLUMNS = ("sequences", "tokens of each", "weights as loaded, ms", "weights packed, ms")
CONTEXT = 256
SHAPES = ((1, 1), (1, 8), (8, 1), (32, 1))
"""Sequences, and tokens of each in the step."""
WARM = 3


def plan_of(sequences: int, tokens: int, block_size: int) -> Sequence[Span]:
    """Spans of ``tokens`` tokens a sequence, after ``CONTEXT`` tokens that were never computed."""
    blocks = -(-(CONTEXT + tokens) // block_size)
    return [
        Span(
            range(1, tokens + 1),
            CONTEXT,
            [range(index * blocks, (index + 1) * blocks)],
            rows=(tokens - 1,),
        )
        for index in range(sequences)
    ]


def linears_table(folder: Path, words: Words, steps: int, threads: int | None) -> str:
    """Medians of ``steps`` steps. One model after the other: both may not fit into memory."""
    columns = []
    for packed in (False, True):
        config = model_config(folder, words, threads=threads, pack_linears=packed)
        runner = load_runner(config)
        columns.append([_median(runner, shape, steps) for shape in SHAPES])
        about = runner.description
        del runner
        gc.collect()
    rows: list[Sequence[str]] = [
        [str(sequences), str(tokens), f"{1e3 * plain:.1f}", f"{1e3 * packed:.1f}"]
        for (sequences, tokens), plain, packed in zip(SHAPES, *columns, strict=True)
    ]
    heading = f"{about.parameters:,} parameters, {about.dtype}; context {CONTEXT}"
    return f"{heading}\n\n{table(COLUMNS, rows)}"


def _median(runner: Runner, shape: tuple[int, int], steps: int) -> float:
    plan = plan_of(*shape, runner.block_size)
    draws = [Draw(SamplingParams(), key) for key in range(len(plan))]
    found = []
    for _ in range(WARM + steps):
        start = time.perf_counter()
        runner.launch(plan)
        runner.sample(draws).wait()
        found.append(time.perf_counter() - start)
    return statistics.median(found[WARM:])
