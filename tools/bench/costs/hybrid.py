"""Step times of a model with recurrent layers and of models with attention alone, interleaved."""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.core.request import SamplingParams
from app.core.step import Draw, Span
from app.model.composition import load_runner
from app.model.config import ModelConfig
from app.model.runner import TorchRunner
from loadtest.tables import table

_COMMON = {
    "vocab_size": 32_768,
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 24,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
_ATTENTION = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "Qwen 3": _COMMON | _ATTENTION,
    "Qwen 3, wider": _COMMON | _ATTENTION | {"intermediate_size": 4704},
    "Qwen 3.5": _COMMON
    | {
        "model_type": "qwen3_5_text",
        "architectures": ["Qwen3_5ForCausalLM"],
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
    },
}
"""Qwen 3.5's 0.8B, Qwen 3 with as many layers of that size, and Qwen 3 with as many parameters:
the mixers of Qwen 3.5 have more of them."""

CONTEXT = 512
STEPS: Mapping[str, tuple[Sequence[int], int]] = {
    "1 answer": ([1], CONTEXT),
    "1 answer, 5 tokens": ([5], CONTEXT),
    "8 answers": ([1] * 8, CONTEXT),
    "32 answers": ([1] * 32, CONTEXT),
    "a prompt's first 512 tokens": ([512], 0),
}
"""Tokens of each sequence in a step, and the number of tokens before them."""
_RUNNING = 32
_CACHE_BYTES = 3 << 30
_WARM = 1


def plan_of(runner: TorchRunner, lengths: Sequence[int], start: int) -> Sequence[Span]:
    """Spans of the next tokens of each sequence; each sequence has its own state slot."""
    size, spans = runner.block_size, []
    for index, length in enumerate(lengths):
        count = -(-(start + length) // size)
        tables = [range(index * count, (index + 1) * count) for _ in runner.cache_groups]
        state, saves = 0, []
        if runner.states is not None:
            state, saves = (1 + index if start else 0), [(length, 1 + index)]
        tokens = range(1, length + 1)
        spans.append(Span(tokens, start, tables, state=state, saves=saves, rows=(length - 1,)))
    return spans


def hybrid_table(folder: Path, steps: int, threads: int | None, *, processor_time: bool) -> str:
    """Medians of ``steps`` steps of random models, made in ``folder``, all in memory at once.

    ``processor_time`` measures this thread's processor time, for a busy machine, on one thread.
    """
    clock = time.thread_time if processor_time else time.perf_counter
    runners = {}
    for name, shape in SHAPES.items():
        own = folder / name
        own.mkdir()
        (own / "config.json").write_text(json.dumps(shape))
        config = ModelConfig(
            str(own), random_weights=True, dtype="bfloat16", device="cpu",
            kv_cache_bytes=_CACHE_BYTES, max_running=_RUNNING,
            threads=1 if processor_time else threads,
        )  # fmt: skip
        runners[name] = load_runner(config)
        gc.collect()
    sizes = ", ".join([f"{n}: {r.description.parameters / 1e6:.0f}M" for n, r in runners.items()])
    print(sizes, flush=True)
    *_, last = runners
    columns = ["ms a step", *runners, *[f"to {name}" for name in runners if name != last]]
    rows: list[Sequence[str]] = []
    for step, (lengths, start) in STEPS.items():
        plans = {name: plan_of(runner, lengths, start) for name, runner in runners.items()}
        times = _interleaved_times(runners, plans, steps if start else -(-steps // 5), clock)
        ratios = [f"{times[last] / taken:.2f}" for name, taken in times.items() if name != last]
        rows.append([step, *[f"{1e3 * taken:.1f}" for taken in times.values()], *ratios])
        print(" | ".join(rows[-1]), flush=True)
    return f"{sizes}; context {CONTEXT}\n\n{table(columns, rows)}"


def _interleaved_times(
    runners: Mapping[str, TorchRunner],
    plans: Mapping[str, Sequence[Span]],
    steps: int,
    clock: Callable[[], float],
) -> dict[str, float]:
    """Median seconds of a step by model."""
    times: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(_WARM + steps):
        for name, runner in runners.items():
            plan = plans[name]
            draws = [Draw(SamplingParams(temperature=0.0), key) for key in range(len(plan))]
            start = clock()
            runner.launch(plan)
            runner.sample(draws).wait()
            times[name].append(clock() - start)
    return {name: statistics.median(own[_WARM:]) for name, own in times.items()}
