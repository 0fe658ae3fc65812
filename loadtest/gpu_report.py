"""The GPU's figures: is a step as fast as its weights can be read, and what does the host add?

``python -m loadtest.gpu_report`` needs CUDA and takes under 8 minutes. It checks the paged kernel
against attention written down plainly, then runs Llama's 1B and 8B shapes with random bfloat16
weights, and prints

- the floor: the bytes of the weights over the bandwidth that a large copy reaches,
- the forward pass alone, as the device's own clock has it (replayed from a CUDA graph),
- a whole step of the runner alone, and one of the engine with as many answers: free, constrained
  with the leap off, and constrained; the host's share is what the device waits for between two
  steps: planning, laying out inputs, committing, handing over.

``--device cpu --tiny`` runs every part on a model of two small layers: what it prints is no figure.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the server does

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from app.core.request import SamplingParams
from app.core.step import Draw, LogitsRow, Span, StepPlan
from app.model.attention import AttentionOptions
from app.model.config import ModelConfig
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import KvStorage, LayerShape, allocate
from app.model.runner import TorchRunner, load_runner, step_attention
from loadtest.model_folder import write_llama_160m
from loadtest.profile_step import Bench, Mode, vocabulary_size
from loadtest.tables import heading, table_row
from tools import datasets

TITLES = (
    "batch",
    "answers",
    "forward ms",
    "over floor",
    "runner's step ms",
    "engine's step ms",
    "host's share",
    "tokens a step",
    "ms a token of one answer",
)
NOTHING = [""] * 6
"""The rest of a row that says why nothing was measured."""

BLOCK_SIZE = 16
CONTEXT = 512
"""Positions of each answer where the runner is measured alone."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model of Llama's architecture."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int = 128_256

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def write(self, folder: Path, tokenizer: Path) -> Path:
        """A model folder without weights; the tokenizer knows fewer tokens than the model."""
        write_llama_160m(folder, tokenizer)
        path = folder / "config.json"
        config = json.loads(path.read_text()) | {
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "vocab_size": self.vocabulary,
        }
        path.write_text(json.dumps(config))
        return folder


SHAPES = (
    Shape("1B", 2048, 8192, 16, 32, 8),
    Shape("8B", 4096, 14336, 32, 32, 8),
)
TINY = Shape("tiny", 64, 128, 2, 4, 2, 50_304)

SPANS = ((1, 700), (1, 31), (1, 1500), (4, 333), (8, 96), (40, 100), (200, 0))
"""Tokens and first position: decodes, leaps and drafts, a later chunk and a prefill."""


def check_kernel(shape: Shape, device: torch.device, dtype: torch.dtype) -> float:
    """The largest error of the paged attention against ``plainly``, values being about 1."""
    torch.manual_seed(0)
    free = iter(torch.randperm(400).tolist())
    spans = [
        Span([0] * length, start, [[next(free) for _ in range(-(-(start + length) // BLOCK_SIZE))]])
        for length, start in SPANS
    ]
    step = lay_out(StepPlan(spans, []), BLOCK_SIZE)
    group = shape.heads // shape.kv_heads
    layer = LayerShape(shape.kv_heads, shape.head_dim, shape.head_dim, group, dtype)
    storage = allocate({0: layer}, num_blocks=400, block_size=BLOCK_SIZE, device=device)
    storage.keys[0].normal_()
    storage.values[0].normal_()
    tokens = len(step.token_ids)
    query = torch.randn(shape.heads, tokens, shape.head_dim, device=device, dtype=dtype)
    key, value = (
        torch.randn(shape.kv_heads, tokens, shape.head_dim, device=device, dtype=dtype)
        for _ in range(2)
    )
    worst = 0.0
    for window in (None, 64):
        options = AttentionOptions(shape.head_dim**-0.5, window, None, None)
        attention = step_attention(storage, {0: layer}, 400 * BLOCK_SIZE)
        attention.begin(step)
        found = attention.attend(0, query, key, value, options)
        difference = found.float() - plainly(query, storage, step, options)
        worst = max(worst, float(difference.abs().max()))
    return worst


def plainly(
    query: torch.Tensor, storage: KvStorage, step: StepArrays, options: AttentionOptions
) -> torch.Tensor:
    """Attention [T, Hq, D] in float32, span by span, with all scores written out."""
    out = query.new_empty(query.shape[1], query.shape[0], query.shape[2], dtype=torch.float32)
    group = query.shape[0] // storage.keys[0].shape[1]
    for span in step.spans:
        blocks = torch.from_numpy(span.blocks[0]).to(query.device)
        within = torch.arange(BLOCK_SIZE, device=query.device)
        slots = (blocks[:, None] * BLOCK_SIZE + within).flatten()[: span.end]
        keys, values = (
            pool[slots].float().repeat_interleave(group, 1)
            for pool in (storage.keys[0], storage.values[0])
        )
        rows = slice(span.row, span.row + span.length)
        scores = torch.einsum("htd,lhd->htl", query[:, rows].float(), keys) * options.scale
        asking = torch.arange(span.start, span.end, device=query.device)[:, None]
        asked = torch.arange(span.end, device=query.device)[None]
        hidden = asked > asking
        if options.window is not None:
            hidden |= asking - asked >= options.window
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        out[rows] = torch.einsum("htl,lhd->thd", weights, values)
    return out


def bandwidth(device: torch.device) -> float:
    """Bytes a second that reading one gigabyte and writing it reaches."""
    source = torch.empty(1 << (30 if device.type == "cuda" else 26), dtype=torch.uint8)
    source = source.to(device)
    target = torch.empty_like(source)
    seconds = min(timed(lambda: target.copy_(source), device) for _ in range(10))
    return 2 * source.numel() / seconds


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds between the device's beginning of ``work`` and its end of it."""
    if device.type == "cpu":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    events: Any = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
    torch.cuda.synchronize(device)
    events[0].record()
    work()
    events[1].record()
    torch.cuda.synchronize(device)
    return float(events[0].elapsed_time(events[1])) / 1e3


def decode_plan(batch: int, runner: TorchRunner) -> StepPlan:
    """One token each of ``batch`` sequences, drawn from all tokens."""
    context = min(CONTEXT, runner.max_model_len - 1)
    blocks = context // BLOCK_SIZE + 1
    rows = [LogitsRow(index, 0) for index in range(batch)]
    spans = [
        Span((index,), context, [range(index * blocks, (index + 1) * blocks)])
        for index in range(batch)
    ]
    return StepPlan(tuple(spans), tuple(rows))


def runner_alone(runner: TorchRunner, batch: int, device: torch.device) -> tuple[float, float]:
    """Median seconds of the forward pass on the device, and of a whole step of the runner."""
    plan = decode_plan(batch, runner)
    draws = [Draw(SamplingParams(), key) for key in range(batch)]
    forwards, steps = [], []
    for _ in range(30):
        forwards.append(timed(lambda: runner.launch(plan), device))
        runner.sample(draws).wait()
        start = time.perf_counter()
        runner.launch(plan)
        runner.sample(draws).wait()
        steps.append(time.perf_counter() - start)
    return statistics.median(forwards[5:]), statistics.median(steps[5:])


def weight_bytes(shape: Shape) -> int:
    """What a decoding step reads: all weights but the embedding's, of which it reads rows."""
    attention = 2 * shape.hidden * (shape.heads + shape.kv_heads) * shape.head_dim
    layer = attention + 3 * shape.hidden * shape.intermediate + 2 * shape.hidden
    return 2 * (shape.layers * layer + shape.hidden * (shape.vocabulary + 1))


class Report:
    """Prints sections while there is time for them."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self._options = options
        self._device = device
        self._end = time.monotonic() + options.seconds

    def run(self) -> None:
        shapes = (TINY,) if self._options.tiny else SHAPES
        dtype = torch.float32 if self._device.type == "cpu" else torch.bfloat16
        print("## The paged attention against plain attention\n")
        for shape in shapes:
            error = check_kernel(shape, self._device, dtype)
            print(f"{shape.name}: largest error {error:.2g}")
            if not error < (1e-4 if dtype == torch.float32 else 0.03):
                sys.exit("the paged attention is wrong; there is no point in timing it")
        speed = bandwidth(self._device)
        print(f"\n## Steps\n\nbandwidth of a large copy: {speed / 1e9:.0f} GB/s\n")
        for shape in shapes:
            with tempfile.TemporaryDirectory() as folder:
                self._measure(shape, shape.write(Path(folder), self._options.tokenizer), speed)
            gc.collect()
            if self._device.type == "cuda":
                torch.cuda.empty_cache()

    def _measure(self, shape: Shape, folder: Path, speed: float) -> None:
        runner = load_runner(
            ModelConfig(
                model=str(folder),
                random_weights=True,
                device="cuda" if self._device.type == "cuda" else "cpu",
                dtype="float32" if self._options.tiny else "bfloat16",
                vocab_size=vocabulary_size(folder),
                kv_cache_bytes=(1 << 28) if self._options.tiny else (24 << 30),
            )
        )
        floor = weight_bytes(shape) * (2 if self._options.tiny else 1) / speed
        print(f"### {shape.name}\n\n{runner.description}\nfloor: {1e3 * floor:.2f} ms a step\n")
        print(heading(TITLES))
        bench = Bench(folder, runner, most=max(self._options.batch), clock=time.perf_counter)
        for batch in self._options.batch:
            forward, step = runner_alone(runner, batch, self._device)
            modes: tuple[Mode, ...] = ("free", "no leap", "constrained")
            for mode in modes:
                if time.monotonic() > self._end:
                    print(table_row((batch, mode, "no time left", *NOTHING)))
                    continue
                print(self._row(bench, batch, mode, forward, step, floor), flush=True)
        print()

    def _row(
        self, bench: Bench, batch: int, mode: Mode, forward: float, step: float, floor: float
    ) -> str:
        # The first time round states are visited and shapes are compiled.
        asyncio.run(bench.measure(batch, mode, self._options.steps, 1))
        steps = asyncio.run(bench.measure(batch, mode, self._options.steps, 1))
        if not steps:
            return table_row((batch, mode, "no step decoded all answers", *NOTHING))
        whole = statistics.median(each.whole for each in steps)
        idle = statistics.median(each.idle for each in steps)
        gained = statistics.mean(each.gained for each in steps)
        return table_row(
            (
                batch,
                mode,
                f"{1e3 * forward:.2f}",
                f"{forward / floor:.2f}",
                f"{1e3 * step:.2f}",
                f"{1e3 * whole:.2f}",
                f"{idle / whole:.1%}",
                f"{gained:.1f}",
                f"{1e3 * batch * whole / gained:.2f}",
            )
        )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a model of two small layers")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--steps", type=int, default=40, help="counted for each row")
    parser.add_argument("--seconds", type=float, default=400, help="then no further row is begun")
    parser.add_argument("--tokenizer", type=Path, default=datasets.GPT2)
    options = parser.parse_args(arguments)
    if options.device == "cpu" and not options.tiny:
        parser.error("the CPU is for trying this out: add --tiny; figures need CUDA")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            "this needs a CUDA device, and torch sees none (to try it: --device cpu --tiny)"
        )
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    Report(options, torch.device(options.device)).run()


if __name__ == "__main__":
    main()
