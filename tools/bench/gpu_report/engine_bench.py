"""The engine over a runner, without HTTP: answers in flight, and the cost of their steps."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch

from app.constraint import Compiler
from app.core.events import StepStats
from app.core.request import EngineRequest, GenerationOptions, SamplingParams
from app.core.specs import JsonSchema
from app.engine import Engine, EngineConfig
from app.model.checkpoints.loading import eos_token_ids
from app.model.runner import TorchRunner
from app.server.interpreter import settle_collector
from app.text import HfTokenizer, Vocabulary
from loadtest.tasks import CHARACTER
from tools.bench.gpu_report.device import kernels_loaded, synchronize
from tools.bench.gpu_report.model import Pass, Watch, WatchedRunner

Mode = Literal["free", "no leap", "constrained"]

SHEETS = {"type": "array", "items": CHARACTER, "minItems": 3, "maxItems": 3}
WARM_STEPS = 6
_MOST_STEPS = 4000
"""Maximum steps until all answers decode; more is an error."""


@dataclass(slots=True)
class Steps:
    """Steps in which all answers of a batch decode."""

    count: int
    seconds: float
    """Seconds from the start of the first step to the end of the last."""
    tokens: int
    """Tokens computed, of all answers together."""
    gained: int
    """Tokens added to the answers."""
    passes: Sequence[Pass]
    drawn: Sequence[tuple[Any, Any]]
    launching: float
    """Seconds of the host in ``launch``."""
    kernels: Sequence[str]
    """Kernels loaded during the steps: there should be none."""

    @property
    def in_graphs(self) -> float:
        """Share of the forward passes that are graph replays."""
        return sum(each.way == "graph" for each in self.passes) / max(1, len(self.passes))

    @property
    def forward(self) -> float:
        """Seconds of the device in forward passes."""
        return sum(each.seconds for each in self.passes)

    @property
    def drawing(self) -> float:
        return float(sum(begin.elapsed_time(end) for begin, end in self.drawn)) / 1e3

    @property
    def idle(self) -> float | None:
        """Share of the time that the device waits for the host, before draws and before passes."""
        if not self.drawn or len(self.drawn) != len(self.passes):
            return None
        steps = list(zip(self.passes, self.drawn, strict=True))
        waits = [each.end.elapsed_time(begin) for each, (begin, _) in steps]
        waits += [end.elapsed_time(each.begin) for (_, (_, end)), (each, _) in pairwise(steps)]
        whole = self.passes[0].begin.elapsed_time(self.drawn[-1][1])
        return float(sum(max(0.0, wait) for wait in waits) / whole)


@dataclass(slots=True)
class _Observer:
    steps: list[StepStats] = field(default_factory=list)

    def observe_step(self, stats: StepStats) -> None:
        self.steps.append(stats)


class EngineBench:
    def __init__(
        self,
        runner: TorchRunner,
        folder: Path,
        device: torch.device,
        tiny: bool,
        *,
        overlap: bool = True,
    ) -> None:
        """``overlap``: launch steps ahead, as a server on a GPU does."""
        tokenizer = HfTokenizer.load(str(folder))
        vocabulary = Vocabulary.from_tokenizer(tokenizer.hf, eos_token_ids(str(folder)))
        self._size = vocabulary.size
        self._device = device
        self._runner = WatchedRunner(runner)
        self._observer = _Observer()
        spare = runner.description.spare_tokens
        most = 4 if tiny else 256
        config = EngineConfig(
            max_running=most,
            max_batch_tokens=8 * spare + max(512, most),
            max_prefill_tokens=8 * spare,
            spare_tokens=spare,
            overlap=overlap,
        )
        self._engine = Engine(self._runner, vocabulary, tokenizer, config, self._observer)
        self._sheets = Compiler(vocabulary).compile(JsonSchema(SHEETS, close_objects=True))
        self._asked = 0
        settle_collector()

    def steps(
        self,
        batch: int,
        mode: Mode,
        count: int,
        prompt: int,
        around: AbstractContextManager[Any] | None = None,
    ) -> Steps:
        """``count`` steps with ``batch`` answers, each after a prompt of ``prompt`` tokens.

        ``around`` is a context manager for these steps (a profiler).
        Raises ``RuntimeError`` if the answers never all decode.
        """
        names = [self._add(prompt, mode, 4000 if prompt > 100 else 400) for _ in range(batch)]
        watch = Watch()
        try:
            with watch.recording():
                self._reach(batch)
                for _ in range(WARM_STEPS if prompt > 100 else 1):
                    self._step()
                return self._measure(watch, count, around or nullcontext())
        finally:
            for name in names:
                self._engine.abort(name)
            while self._engine.has_work:
                self._step()

    def first_token(self, prompt: int) -> float:
        """Seconds from a new prompt to the first chunk of its answer, with nothing else running."""
        synchronize(self._device)
        start = time.perf_counter()
        name = self._add(prompt, "free", 8)
        while not sum(len(output.chunks) for output in self._engine.step()):
            pass
        seconds = time.perf_counter() - start
        self._engine.abort(name)
        while self._engine.has_work:
            self._step()
        return seconds

    def _measure(self, watch: Watch, count: int, around: AbstractContextManager[Any]) -> Steps:
        runner, observed = self._runner, self._observer.steps
        for each in (watch.passes, runner.drawn, runner.launching, observed):
            each.clear()
        gc.collect()
        with kernels_loaded() as kernels, around:
            synchronize(self._device)
            start = time.perf_counter()
            for _ in range(count):
                self._step()
            synchronize(self._device)
            seconds = time.perf_counter() - start
        return Steps(
            count=count,
            seconds=seconds,
            tokens=sum(step.batch_tokens for step in observed),
            gained=sum(step.sampled_tokens + step.leapt_tokens for step in observed),
            passes=list(watch.passes),
            drawn=list(runner.drawn),
            launching=sum(runner.launching),
            kernels=list(kernels),
        )

    def _add(self, prompt: int, mode: Mode, most: int) -> str:
        self._asked += 1
        name = str(self._asked)
        tokens = torch.randint(
            0, self._size - 1, (prompt,), generator=torch.Generator().manual_seed(self._asked)
        )
        self._engine.add(
            EngineRequest(
                request_id=name,
                prompt=tokens.tolist(),
                max_tokens=most,
                options=GenerationOptions(
                    sampling=SamplingParams(), ignore_eos=mode == "free", leap=mode == "constrained"
                ),
                seed=self._asked,
                constraint=None if mode == "free" else self._sheets,
            )
        )
        return name

    def _reach(self, batch: int) -> None:
        """Run steps until all answers decode."""
        for _ in range(_MOST_STEPS):
            self._step()
            if not self._observer.steps:  # the first one is still in flight
                continue
            last = self._observer.steps[-1]
            if last.running == batch and not last.prompt_tokens and not last.waiting:
                return
        raise RuntimeError(f"{batch} answers never decoded together")

    def _step(self) -> None:
        for _ in self._engine.step():
            pass
