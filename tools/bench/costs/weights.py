"""Memory and step time of weights of 16, 8 and 4 bits, against the bytes that a step reads."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.core.request import SamplingParams
from app.core.step import Draw, Span
from app.model.composition import load_runner
from app.model.config import ModelConfig, QuantizeName
from app.model.runner import TorchRunner
from loadtest.tables import table
from tools.bench.model_folder import write_llama, write_llama_160m

NAMES: tuple[QuantizeName | None, ...] = (None, "int8", "int4")
ROWS = (1, 32)
"""Answers in the step, of one token each."""
CONTEXT = 256
WARM = 3
COLUMNS = (
    "model", "weights", "weights, MB", "read a step, MB",
    *[f"{rows}: {what}" for rows in ROWS for what in ("ms", "tokens/s", "GB/s")],
)  # fmt: skip

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
}
"""Sizes of Qwen 2.5; all have 151,936 tokens and an output layer tied to the embedding."""
_COMMON = {"max_position_embeddings": 2048, "tie_word_embeddings": True}
_TOKENS = 151_936


def weights_table(
    folder: Path, names: Sequence[str], tokenizer: Path, steps: int, threads: int | None,
    processor_time: bool,
) -> str:  # fmt: skip
    """Medians of ``steps`` steps of random models, made in ``folder``, one after the other.

    ``processor_time`` measures this thread's processor time, for a busy machine, on one thread.
    """
    clock = time.thread_time if processor_time else time.perf_counter
    rows: list[Sequence[str]] = []
    for name in names:
        own = folder / name
        if name == "160M":
            write_llama_160m(own, tokenizer)
        else:
            write_llama(own, tokenizer, _TOKENS, **_COMMON, **SHAPES[name])
        for quantize in NAMES:
            config = ModelConfig(
                str(own), random_weights=True, dtype="bfloat16", device="cpu", quantize=quantize,
                threads=1 if processor_time else threads,
            )  # fmt: skip
            runner = load_runner(config)
            rows.append([name, quantize or "bfloat16", *_measured(runner, steps, clock)])
            print(" | ".join(rows[-1]), flush=True)
            del runner
            gc.collect()
    return f"context {CONTEXT}\n\n{table(COLUMNS, rows)}"


def _measured(runner: TorchRunner, steps: int, clock: Callable[[], float]) -> list[str]:
    held = sum(runner.description.weight_bytes.values())
    model: Any = runner._forward._model
    read = held - model.model.embed_tokens.weight.nbytes  # of which a step reads a few rows
    cells = [f"{held / 1e6:.0f}", f"{read / 1e6:.0f}"]
    for rows in ROWS:
        plan = plan_of(rows, runner.block_size)
        draws = [Draw(SamplingParams(temperature=0.0), key) for key in range(rows)]
        found = []
        for _ in range(WARM + steps):
            start = clock()
            runner.launch(plan)
            runner.sample(draws).wait()
            found.append(clock() - start)
        step = statistics.median(found[WARM:])
        cells += [f"{1e3 * step:.1f}", f"{rows / step:.0f}", f"{read / step / 1e9:.1f}"]
    return cells


def plan_of(answers: int, block_size: int) -> Sequence[Span]:
    """Spans of a token after ``CONTEXT`` tokens that were never computed."""
    blocks = CONTEXT // block_size + 1
    return [
        Span([1], CONTEXT, [range(index * blocks, (index + 1) * blocks)], rows=(0,))
        for index in range(answers)
    ]
