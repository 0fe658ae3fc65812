"""Share of the engine's steps that fit into a CUDA graph, counted without a GPU.

``python -m tools.bench.graph_fit --batch 8 32 64`` runs the real engine, with its limits on a GPU,
on constrained requests, over a table of random logits in place of a model. For each step, prompts
included, it checks whether a captured graph has room for it: for character sheets and for
MaskBench's schemas. ``padding`` is the share of padding in the tokens of the steps that
fit."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the server does

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from app.constraint import Compiler
from app.core.constraint import Constraint
from app.core.errors import RequestError
from app.core.events import StepStats
from app.core.request import EngineRequest, GenerationOptions, SamplingParams
from app.core.specs import JsonSchema
from app.core.step import Draw, Span, StepResult
from app.engine import Engine
from app.model.config import ModelConfig
from app.model.cuda.attention import TritonAttention
from app.model.cuda.graphs import CudaSteps
from app.model.inputs import lay_out
from app.model.kv_storage import CacheGroup, KvStorage, LayerShape
from app.server.settings import Settings
from app.text import HfTokenizer, Vocabulary
from loadtest.tables import heading, table_row
from loadtest.tasks import CHARACTER, CHARACTER_PROMPT, CHARACTERS
from tools import datasets
from tools.bench.model_folder import write_llama_160m
from tools.bench.profile_step import TableRunner

Workload = Literal["character", "maskbench"]

GPU_SPARE_TOKENS = 256
MAX_MODEL_LEN = 1 << 15
ANSWERS_EACH = 2
"""Answers for each place in a batch: when one ends, the next one begins."""
ANSWER_TOKENS = 300
SCHEMAS = 24
"""Schemas of MaskBench, requested in turn."""


@dataclass(slots=True)
class Fit:
    """Steps of one run."""

    steps: int = 0
    fitting: int = 0
    tokens: int = 0
    """Tokens computed in the steps that fit."""
    padding: int = 0
    """Padding computed in those steps."""
    largest: int = 0
    """Tokens of the largest step, whether it fits or not."""

    @property
    def share(self) -> float:
        return self.fitting / self.steps


class CountingRunner(TableRunner):
    """Counts the steps that fit into a graph."""

    def __init__(self, vocab_size: int, steps: CudaSteps) -> None:
        super().__init__(vocab_size)
        self._steps = steps
        self._drawn: list[int] = []
        self.fit = Fit()

    def sample(self, draws: Sequence[Draw | None]) -> StepResult:
        result = super().sample(draws)
        self._drawn = [token.token_id for token in result.tokens]
        return result

    def launch(self, plan: Sequence[Span]) -> None:
        spans = [
            span if span.drawn_by is None else replace(span, tokens=[self._drawn[span.drawn_by]])
            for span in plan
        ]
        super().launch(spans)
        step, fit = lay_out(plan, self.block_size), self.fit
        tokens = len(step.token_ids)
        fit.steps += 1
        fit.largest = max(fit.largest, tokens)
        if (found := self._steps.find_bucket(step)) is not None:
            fit.fitting += 1
            fit.tokens += tokens
            fit.padding += found[0].tokens - tokens


class NoObserver:
    """A ``StepObserver`` that ignores all steps."""

    def observe_step(self, stats: StepStats) -> None:
        pass


class Bench:
    """A vocabulary of 50,000 tokens, and constraints over it."""

    def __init__(self, folder: Path, *, schemas: int = SCHEMAS) -> None:
        """Writes a tokenizer to ``folder``; ``schemas`` of MaskBench are requested in turn."""
        write_llama_160m(folder, datasets.GPT2)
        self.tokenizer = HfTokenizer.load(str(folder))
        self.vocabulary = Vocabulary.from_tokenizer(self.tokenizer.hf)
        compiler = Compiler(self.vocabulary)
        self._constraints: Mapping[Workload, Sequence[Constraint]] = {
            "character": [compiler.compile(JsonSchema(CHARACTER, close_objects=True))],
            "maskbench": [*islice(_of_maskbench(compiler), schemas)],
        }

    def requests(
        self, workload: Workload, count: int, answer_tokens: int, *, constrained: bool
    ) -> Iterator[EngineRequest]:
        constraints = cycle(self._constraints[workload])
        for number, constraint in zip(range(count), constraints, strict=False):
            prompt = "Give me an example, please."
            if workload == "character":
                prompt = CHARACTER_PROMPT.format(CHARACTERS[number % len(CHARACTERS)])
            yield EngineRequest(
                request_id=str(number),
                prompt=self.tokenizer.encode_prompt(prompt),
                max_tokens=answer_tokens,
                options=GenerationOptions(
                    sampling=SamplingParams(temperature=1.0), ignore_eos=not constrained
                ),
                seed=number,
                constraint=constraint if constrained else None,
            )

    def count(
        self,
        workload: Workload,
        batch: int,
        *,
        max_graph_tokens: int,
        answers: int,
        answer_tokens: int = ANSWER_TOKENS,
        constrained: bool = True,
    ) -> Fit:
        """Run ``answers`` answers, ``batch`` at a time, to their end; the counts of all steps."""
        runner = CountingRunner(self.vocabulary.size, planner(max_graph_tokens))
        limits = Settings(max_running=batch).engine_layer(GPU_SPARE_TOKENS)
        limits = replace(limits, overlap=True)
        engine = Engine(
            runner, self.vocabulary, self.tokenizer, limits, NoObserver(), clock=time.perf_counter
        )
        waiting = self.requests(workload, answers, answer_tokens, constrained=constrained)
        for request in waiting:
            engine.add(request)
            if engine.num_running + engine.num_waiting == batch:
                break
        while engine.has_work:
            ended = 0
            for output in engine.step():
                ended += sum(chunk.finish_reason is not None for chunk in output.chunks)
            for _, request in zip(range(ended), waiting, strict=False):
                engine.add(request)
        return runner.fit


def _of_maskbench(compiler: Compiler) -> Iterator[Constraint]:
    """Constraints of schemas drawn from the whole file, without those that cannot be enforced."""
    for case in datasets.maskbench(count=200, seed=1):
        try:
            yield compiler.compile(JsonSchema(case["schema"], close_objects=True))
        except RequestError:
            continue


def planner(max_graph_tokens: int) -> CudaSteps:
    """``CudaSteps`` for Llama 3.1 8B's shape, only complete enough to choose a graph."""
    shape = LayerShape(kv_heads=8, key_dim=128, value_dim=128, group=4, dtype=torch.bfloat16)
    keys = torch.empty(TableRunner.block_size, 8, 128, dtype=torch.bfloat16)
    storage = KvStorage(
        device=torch.device("cpu"),
        block_size=TableRunner.block_size,
        groups=(CacheGroup(layers=(0,), num_blocks=1 << 15),),
        keys={0: keys},
        values={0: keys},
    )
    attention = TritonAttention(storage, {0: shape}, max_model_len=MAX_MODEL_LEN)
    forward: Any = None  # nothing is run
    return CudaSteps(
        forward, attention, max_graph_tokens=max_graph_tokens, max_model_len=MAX_MODEL_LEN
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.graph_fit", description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 32, 64], metavar="N")
    parser.add_argument(
        "--workload", nargs="+", default=get_args(Workload), choices=get_args(Workload)
    )
    parser.add_argument("--max-graph-tokens", type=int, default=ModelConfig("").max_graph_tokens)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
    print(heading(("workload", "batch", "steps", "fit", "share", "padding", "largest step")))
    for workload in options.workload:
        for batch in options.batch:
            fit = bench.count(
                workload,
                batch,
                max_graph_tokens=options.max_graph_tokens,
                answers=batch * ANSWERS_EACH,
            )
            print(row(workload, batch, fit))


def row(workload: Workload, batch: int, fit: Fit) -> str:
    """One line of the table."""
    return table_row(
        (
            workload,
            batch,
            fit.steps,
            fit.fitting,
            f"{fit.share:.1%}",
            f"{fit.padding / max(1, fit.tokens + fit.padding):.1%}",
            fit.largest,
        )
    )


if __name__ == "__main__":
    main()
