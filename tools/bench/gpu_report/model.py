"""A runner of a model with random weights, and the device's work in each step."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from app.core.step import Draw, PendingDraws, Runner, Span
from app.model.checkpoints.loading import language_part, load_whole
from app.model.composition import load_runner
from app.model.config import ModelConfig
from app.model.cuda import graphs
from app.model.cuda.attention import TritonAttention
from app.model.cuda.graphs import CudaSteps
from app.model.cuda.layers import fuse
from app.model.cuda.sampling import DeviceSampler
from app.model.device import spare_tokens
from app.model.forward import RaggedForward
from app.model.kv_storage import KvStorage, allocate
from app.model.layers.attention import AttentionRoute, probe_layers
from app.model.layers.recurrent import RecurrentRoute
from app.model.runner import RunnerDescription, TorchRunner
from app.model.self_check import check_ragged_step, make_case, whole_logits
from tools.bench.gpu_report.device import device_of, event, kernels_loaded
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.paged import A_HOPPER
from tools.bench.gpu_report.record import Record
from tools.bench.gpu_report.shapes import TINY, Shape

MAX_CHECKED_VOCABULARY = 512
CHECKED_BLOCK_SIZE = 4
INTERPRETED_BLOCKS = 128
Way = Literal["graph", "eager"]


@contextlib.contextmanager
def loaded(
    record: Record, options: Options, shape: Shape, **config: Any
) -> Iterator[tuple[TorchRunner, Path]]:
    """The model of ``shape``, or a tiny one, as the server loads it; and its folder.

    The cache is filled with random numbers: zeros would be faster to read than real data.
    """
    device = device_of(options)
    shape = TINY if options.tiny else shape
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokens = shape.write(folder, options.tokenizer)
        settings: dict[str, Any] = {
            "model": name,
            "random_weights": True,
            "device": options.device,
            "dtype": "float32" if options.tiny else "bfloat16",
            "vocab_size": tokens,
            "max_batch_tokens": 64 if options.tiny else 8192,
            "max_running": 4 if options.tiny else 256,
            "max_rows_each": 2,
            **({"max_graph_tokens": 0} if options.tiny else {}),
            "cuda_graphs": options.graphs,
        }
        start = time.perf_counter()
        with kernels_loaded() as kernels, replays_compared() as replays:
            runner = load(options, ModelConfig(**settings | config))
        record.value("seconds to load and check", time.perf_counter() - start)
        record.value("kernels loaded meanwhile", len(kernels))
        record_replays(record, runner, replays)
        record.detail("runner", asdict(runner.description))
        told = ("cuda_graphs", "fused_layers", "cache_tokens", "max_model_len")
        record.value("runner", {name: getattr(runner.description, name) for name in told})
        _fill(runner)
        if device.type == "cuda":
            memory(record, "after loading")
            torch.cuda.reset_peak_memory_stats()
        yield runner, folder


def load(options: Options, config: ModelConfig) -> TorchRunner:
    """The server's runner; in a dry run, its CUDA path with interpreted kernels."""
    return load_runner(config) if options.device == "cuda" else interpreted_runner(config)


def interpreted_runner(config: ModelConfig) -> TorchRunner:
    """The runner that ``load_runner`` builds for a GPU, with tensors on the CPU.

    A "graph" launches its captured kernels again, one by one. Models with a vocabulary of more than
    ``MAX_CHECKED_VOCABULARY`` tokens are not checked: interpreted, the check takes long.
    """
    device = torch.device("cpu")
    model = language_part(load_whole(config, device, torch.float32), device)
    route = AttentionRoute()
    shapes = probe_layers(model, route, RecurrentRoute(model))
    vocabulary = config.vocab_size or model.config.get_text_config().vocab_size
    case = make_case(vocabulary, CHECKED_BLOCK_SIZE)
    expected = whole_logits(model, case)
    fused = fuse(model, route, batch_invariant=config.batch_invariant)
    model.set_attn_implementation(route.name)

    def steps_over(blocks: int, block_size: int, graph_tokens: int) -> tuple[Any, KvStorage]:
        storage = allocate(shapes, num_blocks=blocks, block_size=block_size, device=device)
        length = min(blocks * block_size, model.config.max_position_embeddings)
        attention = TritonAttention(
            storage, shapes, max_model_len=length, batch_invariant=config.batch_invariant,
            device=A_HOPPER,
        )  # fmt: skip
        forward = RaggedForward(model, route, RecurrentRoute(model), attention)
        steps = CudaSteps(
            forward, attention, max_graph_tokens=graph_tokens, max_model_len=length,
            capture=_RelaunchedGraph,
        )  # fmt: skip
        steps.prepare()
        return steps, storage

    if vocabulary <= MAX_CHECKED_VOCABULARY:
        checked, _ = steps_over(case.blocks, CHECKED_BLOCK_SIZE, 0)
        check_ragged_step(model, checked, case, CHECKED_BLOCK_SIZE, expected)
    blocks = INTERPRETED_BLOCKS
    steps, storage = steps_over(blocks, config.block_size, config.max_graph_tokens)
    return TorchRunner(
        forward=steps._forward,
        graphs=steps,
        sampler=DeviceSampler(vocabulary, device),
        storage=storage,
        adapters=None,
        compilations=None,
        description=RunnerDescription(
            architecture=type(model).__name__,
            device="interpreted",
            dtype="float32",
            parameters=model.num_parameters(),
            packed_linears=0,
            fused_layers=fused,
            batch_invariant=config.batch_invariant,
            cuda_graphs=steps.count,
            cache_tokens=blocks * config.block_size,
            max_model_len=min(blocks * config.block_size, model.config.max_position_embeddings),
            spare_tokens=spare_tokens(device),
        ),
    )


class _RelaunchedGraph:
    """Stand-in for a captured CUDA graph."""

    def __call__(self, launch: Callable[[], None]) -> _RelaunchedGraph:
        launch()
        self.replay = launch
        return copy(self)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Errors of a graph's replay against its references, at load."""

    step: str
    """Description with its numbers of tokens and rows of logits."""
    launched: float
    """Error against the same launches, one by one: the worst row."""
    unpadded: float
    """Error of these launches against the step without padding: the median row."""


class _Replays(logging.Handler):
    """Collects the comparisons that ``CudaSteps`` logs."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[Replayed] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.DEBUG and isinstance(record.args, tuple):
            shape, launched, unpadded = record.args
            self.found.append(Replayed(str(shape), float(str(launched)), float(str(unpadded))))


@contextlib.contextmanager
def replays_compared() -> Iterator[list[Replayed]]:
    """Replays that are compared inside the block."""
    handler, logger = _Replays(), logging.getLogger(graphs.__name__)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler.found
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def record_replays(record: Record, runner: TorchRunner, replays: Sequence[Replayed]) -> None:
    """Record the number of replays and the worst one; the file has all of them."""
    if runner.description.cuda_graphs and not replays:
        record.failed("graphs", "no replay was compared with its reference")
    record.detail("replays compared at load", [asdict(each) for each in replays])
    told: dict[str, object] = {"number": len(replays)}
    if replays:
        worst = max(replays, key=lambda each: each.launched)
        told |= {"worst": worst.launched, "of": worst.step}
        told |= {"worst unpadded": max(each.unpadded for each in replays)}
    record.value("replays compared at load", told)


def memory(record: Record, when: str) -> None:
    """Record peaks since the last reset, and the free memory of the device."""
    free, total = torch.cuda.mem_get_info()
    gib = 1 << 30
    record.value(
        f"GiB {when}",
        {
            "peak": torch.cuda.max_memory_allocated() / gib,
            "peak reserved": torch.cuda.max_memory_reserved() / gib,
            "free": free / gib,
            "total": total / gib,
        },
    )


def _fill(runner: TorchRunner) -> None:
    storage: Any = runner._forward.attention.storage  # type: ignore[attr-defined]
    for pool in (*storage.keys.values(), *storage.values.values()):
        pool.normal_()


@dataclass(slots=True)
class Pass:
    """One forward pass: the way of its launch, and the device's events around it."""

    way: Way
    begin: Any = None
    end: Any = None
    graph: Any = None

    @property
    def seconds(self) -> float:
        """Seconds on the device, once the pass is done; 0 without a device."""
        return 0.0 if self.begin is None else float(self.begin.elapsed_time(self.end)) / 1e3


@dataclass(slots=True)
class Watch:
    """Records every forward pass of every model inside ``recording``."""

    passes: list[Pass] = field(default_factory=list)

    @contextlib.contextmanager
    def recording(self) -> Iterator[Watch]:
        """Record forward passes inside the block."""
        cuda = torch.cuda.is_available()
        compute = RaggedForward.compute
        graph: Any = torch.cuda.CUDAGraph
        replay = graph.replay

        def computed(*arguments: Any, **named: Any) -> Any:
            with self._noted("eager", cuda and not torch.cuda.is_current_stream_capturing()):
                return compute(*arguments, **named)

        def replayed(captured: Any) -> None:
            with self._noted("graph", cuda, captured):
                replay(captured)

        patched: Any = RaggedForward
        patched.compute, graph.replay = computed, replayed
        try:
            yield self
        finally:
            patched.compute, graph.replay = compute, replay

    @contextlib.contextmanager
    def _noted(self, way: Way, timed: bool, graph: Any = None) -> Iterator[None]:
        noted = Pass(way, graph=graph)
        if timed:
            noted.begin, noted.end = event(), event()
            noted.begin.record()
        yield
        if timed:
            noted.end.record()
        self.passes.append(noted)


def answers_plan(
    runner: Runner, batch: int, context: int, length: int = 1, vocabulary: int = 1000
) -> Sequence[Span]:
    """The last ``length`` tokens of ``batch`` sequences of ``context`` tokens; logits of the last.

    Raises ``ValueError`` if the cache cannot hold them.
    """
    blocks = -(context // -runner.block_size)
    there = runner.cache_groups[0].num_blocks
    if batch * blocks > there or context > runner.max_model_len:
        raise ValueError(f"the cache has {there} blocks, and {batch * blocks} are needed")
    order = torch.randperm(there, generator=torch.Generator().manual_seed(0)).tolist()
    tokens = torch.randint(0, vocabulary, (batch, length)).tolist()
    return [
        Span(
            tokens[i],
            context - length,
            [order[i * blocks : (i + 1) * blocks]],
            rows=(length - 1,),
        )
        for i in range(batch)
    ]


class WatchedRunner:
    """Forwards to a runner; records the device's events around draws, and times of launches."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.drawn: list[tuple[Any, Any]] = []
        """Events before and after the draws of each step."""
        self.launching: list[float] = []
        """Seconds that the host takes to launch each step."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def launch(self, plan: Sequence[Span]) -> None:
        start = time.perf_counter()
        self._runner.launch(plan)
        self.launching.append(time.perf_counter() - start)

    def sample(self, draws: Sequence[Draw | None]) -> PendingDraws:
        if not torch.cuda.is_available():
            return self._runner.sample(draws)
        begin, end = event(), event()
        begin.record()
        pending = self._runner.sample(draws)
        end.record()
        self.drawn.append((begin, end))
        return pending
