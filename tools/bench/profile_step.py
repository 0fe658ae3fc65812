"""Time of a step by its parts: the real engine, runner, worker and stream writer in one process.

``python -m tools.bench.profile_step --batch 1 8 32 128`` keeps these numbers of answers of the 160M
model with random weights in flight, free and constrained (an array of character sheets), and prints
medians over the steps that decode all of them; "no leap" is constrained with leaps off. The host's
work is all work of the engine's thread except the forward pass; the event loop's is counted in
processor time, since it runs beside the model.

On a busy machine ``--cpu-time --threads 1`` counts the engine's thread in processor time too.

``--fake-device 6`` replaces the model by an accelerator that takes 6 ms for every step, and prints
the share of time that it was busy and the tokens a second of the answers, with serial and with
overlapping steps. Time is processor time there (see
``tools.bench.fake_device``).

``--no-model`` replaces only the model: the logits after a token are the token's row in a table of
random numbers. It costs little, and measures the host's work alone.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the server does

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import torch

from app.answer.formats import detect
from app.answer.plan import AnswerPlan
from app.constraint import Compiler
from app.core.cache import CacheGroup, StateSlots
from app.core.events import RequestStats, StepStats
from app.core.request import EngineRequest, GenerationOptions, SamplingParams
from app.core.specs import JsonSchema
from app.core.step import Draw, PendingDraws, Runner, Span, StepResult
from app.core.text import RenderedPrompt
from app.engine import Engine, EngineConfig
from app.http.chat.parse import ChatCompletionRequest
from app.http.chat.write import chat_renderer
from app.http.config import ApiConfig
from app.http.models import ServedModel
from app.http.requests.fields import stream_options
from app.http.requests.wire import Ignored
from app.model import kv_storage
from app.model.checkpoints.loading import eos_token_ids
from app.model.composition import load_runner
from app.model.config import DTypeName, ModelConfig, QuantizeName
from app.model.cpu.sampling import CpuSampler
from app.model.inputs import lay_out
from app.server.interpreter import OVERLAPPED_SECONDS, SERIAL_SECONDS, settle_collector
from app.serving.admission import Admission
from app.serving.generation import Generation
from app.serving.timeline import Timeline
from app.serving.worker import EngineWorker
from app.text import HfTokenizer, Vocabulary
from loadtest.tables import heading, table_row
from loadtest.tasks import CHARACTER
from tools import datasets
from tools.bench.fake_device import FakeDevice, VirtualClock
from tools.bench.model_folder import write_llama_160m

Mode = Literal["free", "constrained", "no leap"]
Clock = Callable[[], float]

SHEETS = {"type": "array", "items": CHARACTER, "minItems": 3, "maxItems": 3}
WARM_STEPS = 5
TABLE_ROWS = 251
SPARE_TOKENS = 256
"""``EngineConfig.spare_tokens`` of a fake device."""
SHARPNESS = 5.0
"""Standard deviation of a table's logits."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step; durations in seconds."""

    forward: float
    """The model, from laid-out inputs to logits."""
    inputs: float
    plan: float
    masks: float
    sampling: float
    commit: float
    hand_over: float
    """Time between two steps on the engine's thread: accounting, and waking the event loop."""
    loop: float
    """Processor time of the event loop's thread since the step before."""
    tokens: int
    """Tokens computed, of all answers together."""
    gained: int
    """Tokens added to the answers."""
    idle: float
    """Seconds that an accelerator waited, by the engine's estimate."""
    ended: float
    """End of the step, on the clock."""
    busy: float
    """Seconds that a fake device was busy until the end of the step."""

    @property
    def host(self) -> float:
        return self.inputs + self.plan + self.masks + self.sampling + self.commit + self.hand_over

    @property
    def whole(self) -> float:
        return self.host + self.forward


class WatchedRunner:
    """Forwards to a runner, and times the layout of inputs separately."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock
        self.inputs = 0.0
        """Seconds of laying out the last step's inputs, which happens twice and is timed once."""

    @property
    def block_size(self) -> int:
        return self._runner.block_size

    @property
    def cache_groups(self) -> Sequence[CacheGroup]:
        return self._runner.cache_groups

    @property
    def states(self) -> StateSlots | None:
        return self._runner.states

    @property
    def max_model_len(self) -> int:
        return self._runner.max_model_len

    @property
    def trees(self) -> bool:
        return self._runner.trees

    def launch(self, plan: Sequence[Span]) -> None:
        start = self._clock()
        lay_out(plan, self.block_size)
        self.inputs = self._clock() - start
        self._runner.launch(plan)

    def sample(self, draws: Sequence[Draw | None]) -> PendingDraws:
        return self._runner.sample(draws)


class TableRunner:
    """A runner without a model: the logits after a token are its row in a table.

    The rows are peaked, so that answers repeat like those of a trained model, and some drafts are
    accepted. Inputs are laid out and tokens sampled as for a model on the CPU.
    """

    block_size = 16
    cache_groups = (kv_storage.CacheGroup(layers=(), num_blocks=1 << 15),)
    states = None
    max_model_len = 1 << 15
    trees = False

    def __init__(self, vocab_size: int) -> None:
        chance = torch.Generator().manual_seed(0)
        self._logits = SHARPNESS * torch.randn(TABLE_ROWS, vocab_size, generator=chance)
        self._sampler = CpuSampler(vocab_size)
        self._sampler.warm_up(self._logits.dtype)
        self._launched: torch.Tensor | None = None

    def launch(self, plan: Sequence[Span]) -> None:
        lay_out(plan, self.block_size)
        rows = [span.tokens[at] % TABLE_ROWS for span in plan for at in span.rows]
        self._launched = self._logits[rows]

    def sample(self, draws: Sequence[Draw | None]) -> StepResult:
        assert self._launched is not None, "sample without launch"
        logits, self._launched = self._launched, None
        return self._sampler.sample(logits, draws) if draws else StepResult(tokens=())


@dataclass(slots=True)
class Recorder:
    """Observes the engine; keeps the steps in which all of a batch decode."""

    runner: WatchedRunner | FakeDevice
    clock: Clock
    batch: int = 0
    most_steps: int = 0
    on_done: Callable[[], object] = lambda: None
    steps: list[Step] = field(default_factory=list)
    loop_clock: int = -1
    """The processor clock of the event loop's thread."""
    _ended: float = 0.0
    _loop: float = 0.0
    _passed: int = 0

    @property
    def _times_laid_out(self) -> int:
        return 1 if isinstance(self.runner, FakeDevice) else 2

    def begin(self, batch: int, most_steps: int, on_done: Callable[[], object]) -> None:
        """``on_done`` is called on the engine's thread after ``most_steps`` steps."""
        self.batch, self.most_steps, self.on_done = batch, most_steps, on_done
        self._passed, self.steps = 0, []

    def observe_step(self, stats: StepStats) -> None:
        now, loop = self.clock(), time.clock_gettime(self.loop_clock)
        laps = (stats.plan_seconds, stats.launch_seconds, stats.mask_seconds)
        spent = sum(laps) + stats.sample_seconds + stats.commit_seconds
        full = stats.running == self.batch and not stats.prompt_tokens and not stats.waiting
        self._passed = self._passed + 1 if full else 0
        if self._passed > WARM_STEPS and len(self.steps) < self.most_steps:
            self.steps.append(
                Step(
                    # With a model, the inputs were laid out twice.
                    forward=stats.launch_seconds - self._times_laid_out * self.runner.inputs,
                    inputs=self.runner.inputs,
                    plan=stats.plan_seconds,
                    masks=stats.mask_seconds,
                    sampling=stats.sample_seconds,
                    commit=stats.commit_seconds,
                    hand_over=max(0.0, now - self._ended - spent),
                    loop=loop - self._loop,
                    tokens=stats.batch_tokens,
                    gained=stats.sampled_tokens + stats.leapt_tokens,
                    idle=stats.idle_seconds,
                    ended=now,
                    busy=self.runner.busy if isinstance(self.runner, FakeDevice) else 0.0,
                )
            )
            if len(self.steps) == self.most_steps:
                self.on_done()
        self._ended, self._loop = now, loop

    def observe_request(self, stats: RequestStats) -> None:
        pass

    def observe_compile(self, kind: str, result: str, seconds: float) -> None:
        pass


class Bench:
    """A model's engine, and everything from a prompt to the bytes of a stream."""

    def __init__(
        self,
        model: Path,
        runner: Runner,
        *,
        most: int,
        temperature: float = 1.0,
        overlap: bool = False,
        pipelined: int = 64,
        clock: Clock,
    ) -> None:
        """``most``: answers at a time; ``overlap``, ``pipelined``: see ``EngineConfig``."""
        tokenizer = HfTokenizer.load(str(model))
        vocabulary = Vocabulary.from_tokenizer(tokenizer.hf, eos_token_ids(str(model)))
        self._vocabulary = vocabulary
        self._config = ApiConfig(
            served_model="bench",
            max_model_len=runner.max_model_len,
            version="",
            chat_format=detect(tokenizer.chat_template, tokenizer.special_tokens),
            fingerprint="fp",
            products="",
            created=0,
        )
        message = {"role": "user", "content": ""}
        self._asked = ChatCompletionRequest.read(
            {"model": "bench", "messages": [message], "stream": True}, Ignored()
        )
        watched = runner if isinstance(runner, FakeDevice) else WatchedRunner(runner, clock)
        self.recorder = Recorder(watched, clock)
        config = EngineConfig(
            max_running=most,
            max_batch_tokens=max(512, 4 * most),
            overlap=overlap,
            pipelined_answers=pipelined,
        )
        if isinstance(runner, FakeDevice):  # the server's settings for a GPU
            prefill = 8 * SPARE_TOKENS
            config = replace(
                config,
                max_batch_tokens=prefill + max(512, most),
                max_prefill_tokens=prefill,
                spare_tokens=SPARE_TOKENS,
            )
        self._engine = Engine(watched, vocabulary, tokenizer, config, self.recorder, clock=clock)
        self._prompt = [*tokenizer.encode_prompt("The characters of the story, one by one. " * 8)]
        self._sheets = Compiler(vocabulary).compile(JsonSchema(SHEETS, close_objects=True))
        self._sampling = SamplingParams(temperature=temperature)

    async def measure(self, batch: int, mode: Mode, steps: int, seed: int) -> list[Step]:
        """Up to ``steps`` steps in which all answers of the batch decode."""
        recorder, loop, enough = self.recorder, asyncio.get_running_loop(), asyncio.Event()
        recorder.loop_clock = time.pthread_getcpuclockid(threading.get_ident())
        recorder.begin(batch, steps, lambda: loop.call_soon_threadsafe(enough.set))
        worker = EngineWorker(self._engine, clock=time.perf_counter)
        admission = Admission(batch, clock=time.perf_counter)
        worker.start()
        async with asyncio.TaskGroup() as group:
            streams = [
                group.create_task(self._stream(worker, admission, number, mode, seed))
                for number in range(batch)
            ]
            await asyncio.wait(
                [*streams, group.create_task(enough.wait())], return_when="FIRST_COMPLETED"
            )
            for stream in streams:
                stream.cancel()
            enough.set()
        await worker.stop()
        return recorder.steps

    async def _stream(
        self,
        worker: EngineWorker,
        admission: Admission,
        number: int,
        mode: Mode,
        seed: int,
    ) -> None:
        """The server's work for one streamed answer, up to the bytes for the socket."""
        request = EngineRequest(
            request_id=f"{seed}-{number}",
            # Prompts differ from their first token on, so that no prefix is cached.
            prompt=[number + 300, *self._prompt],
            max_tokens=1400,
            options=GenerationOptions(
                sampling=self._sampling, ignore_eos=mode == "free", leap=mode == "constrained"
            ),
            seed=seed + number,
            constraint=None if mode == "free" else self._sheets,
        )
        ticket = admission.enter()
        ticket.take(1)
        generation = Generation(
            [request],
            [AnswerPlan.of(RenderedPrompt(request.prompt), None, None, self._config.chat_format)],
            texts=[None],
            ticket=ticket,
            timeline=Timeline("profile", request.request_id, self.recorder, time.perf_counter),
            abort=worker.abort,
            status_of=lambda error: 500,
        )
        served = ServedModel.base(self._config)
        renderer = chat_renderer(
            generation,
            model=served,
            stream=stream_options(self._asked),
            vocabulary=self._vocabulary if self._asked.logprobs else None,
            reasoning_names=("reasoning_content",),
        )
        try:
            await worker.submit([request], generation)
            async for batch in generation.batches():
                b"".join(renderer.chunk(*added) for added in batch)
        finally:
            generation.close()


def vocabulary_size(model: Path) -> int:
    """Number of token ids of the folder's tokenizer."""
    return Vocabulary.from_tokenizer(HfTokenizer.load(str(model)).hf, frozenset()).size


COLUMNS = ("forward", "inputs", "plan", "masks", "sampling", "commit", "hand_over", "host", "loop")


TITLES = (
    "batch",
    "answers",
    "order",
    "tokens",
    "gained",
    "step ms",
    *(name.replace("_", "-") for name in COLUMNS),
    "host share",
    "host us/answer",
    "busy",
    "tokens/s",
)


def row(batch: int, mode: Mode, order: str, repeats: Sequence[Sequence[Step]]) -> str:
    """One line of the table, from medians; the host's share is a share of the whole step.

    The device's busy share and tokens a second are over the time from the first step to the last.
    """
    steps = [step for each in repeats for step in each]
    busy = elapsed = gained = 0.0
    for first, *others in repeats:
        busy += others[-1].busy - first.busy
        elapsed += others[-1].ended - first.ended
        gained += sum([step.gained for step in others])

    def median(values: Iterable[float]) -> float:
        return statistics.median(values)

    whole = median(step.whole for step in steps)
    host = median(step.host for step in steps)
    cells = [
        batch,
        mode,
        order,
        f"{median(step.tokens for step in steps):.0f}",
        f"{statistics.mean(step.gained for step in steps):.0f}",
        f"{1e3 * whole:.2f}",
        *(f"{1e3 * median(getattr(step, name) for step in steps):.2f}" for name in COLUMNS),
        f"{host / whole:.1%}",
        f"{1e6 * host / batch:.0f}",
        f"{busy / elapsed:.0%}" if busy else "",
        f"{gained / elapsed:.0f}",
    ]
    return table_row(cells)


async def profile(bench: Bench, options: argparse.Namespace, order: str) -> None:
    """Print a row for every batch size and mode, measured in turn within each repeat."""
    found: dict[tuple[int, Mode], list[list[Step]]] = {}
    modes: Sequence[Mode] = options.mode
    for mode in modes:  # compute the masks first, so that they do not count
        if mode != "free":
            await bench.measure(max(options.batch), mode, options.steps, 0)
    seed = 0
    for _ in range(options.repeats):
        for batch in options.batch:
            for mode in modes:
                seed += 1000
                steps = await bench.measure(batch, mode, options.steps, seed)
                found.setdefault((batch, mode), [])
                if len(steps) > 1:
                    found[batch, mode].append(steps)
    for (batch, mode), repeats in found.items():
        cells = (batch, mode, order, "no full step")
        print(row(batch, mode, order, repeats) if repeats else table_row(cells), flush=True)


def prepare(options: argparse.Namespace, model: Path, clock: Clock) -> Runner:
    """The runner that the options select; prints its description."""
    vocab_size = vocabulary_size(model)
    if isinstance(clock, VirtualClock):
        print(f"a fake device, {options.fake_device} ms a step, {vocab_size} tokens\n")
        return FakeDevice(vocab_size, options.fake_device / 1e3, clock)
    if options.no_model:
        torch.set_num_threads(options.threads or torch.get_num_threads())
        print(f"no model, {vocab_size} tokens\n")
        return TableRunner(vocab_size)
    runner = load_runner(
        ModelConfig(
            model=str(model),
            random_weights=options.model is None,
            dtype=options.dtype,
            quantize=options.quantize,
            threads=options.threads,
            vocab_size=vocab_size,
            kv_cache_bytes=6 << 30,
        )
    )
    print(runner.description, "\n")
    return runner


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--mode", nargs="+", choices=get_args(Mode))
    parser.add_argument("--steps", type=int, default=40, help="steps in each repeat")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--temperature", type=float, default=1.0)
    dtypes: list[DTypeName] = ["auto", "float32", "bfloat16"]
    parser.add_argument("--dtype", choices=dtypes, default="auto")
    parser.add_argument("--quantize", choices=get_args(QuantizeName))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--model", type=Path, help="folder with weights (default: random ones)")
    parser.add_argument("--no-model", action="store_true", help="see above; tokens are --model's")
    parser.add_argument("--tokenizer", type=Path, default=datasets.GPT2)
    parser.add_argument("--fake-device", type=float, metavar="MS", help="see above")
    parser.add_argument("--order", nargs="+", choices=["serial", "overlapped"])
    parser.add_argument("--pipelined", type=int, default=64, help="EngineConfig.pipelined_answers")
    options = parser.parse_args(arguments)
    options.mode = options.mode or ["free", "constrained"]
    options.order = options.order or (
        ["serial"] if options.fake_device is None else ["serial", "overlapped"]
    )
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    clock: Clock = time.thread_time if options.cpu_time else time.perf_counter
    if options.fake_device is not None:
        clock = VirtualClock()
    with tempfile.TemporaryDirectory() as folder:
        model: Path = options.model or Path(folder) / "llama-160m"
        if options.model is None:
            write_llama_160m(model, options.tokenizer)
        runner = prepare(options, model, clock)
        print(heading(TITLES))
        for order in options.order:
            sys.setswitchinterval(SERIAL_SECONDS if order == "serial" else OVERLAPPED_SECONDS)
            bench = Bench(
                model,
                runner,
                most=max(options.batch),
                temperature=options.temperature,
                overlap=order == "overlapped",
                pipelined=options.pipelined,
                clock=clock,
            )
            settle_collector()  # as the server does before it listens
            asyncio.run(profile(bench, options, order))


if __name__ == "__main__":
    main()
