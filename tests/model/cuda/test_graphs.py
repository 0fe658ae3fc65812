"""Buckets, padding and the checks of captured graphs, as far as they need no GPU.

Graphs are replaced by objects whose replay launches the interpreted kernels again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from app.core.cache import StateSlots
from app.core.errors import UnsupportedModel
from app.core.images import PreparedImage, PromptImage
from app.core.step import Span, SpanImages
from app.model.cpu.attention import CpuAttention
from app.model.cuda.attention import TritonAttention
from app.model.cuda.graphs import (
    Bucket,
    Capture,
    CudaSteps,
    GraphCapture,
    Replay,
    choose_bucket,
    make_buckets,
)
from app.model.cuda.scan import TritonScan
from app.model.cuda.step_buffers import DeviceStep, DeviceWave
from app.model.cuda.tiles import Device
from app.model.cuda.trial_steps import TrialSteps
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import LayerShape, allocate_groups
from app.model.layers.attention import AttentionOptions, AttentionRoute, probe_layers
from app.model.layers.recurrent import DeltaRule, RecurrentRoute
from app.model.state_storage import StateShape, allocate_states
from tests.model.cuda.test_attention import BLOCK, CPU, make_storage, on_device
from tests.model.interpreter import DEVICE
from tests.model.tiny import eager_model, save_config
from tests.steps import planned

SMALL = Device(multiprocessors=1, shared_bytes=99 << 10, capability=8)
MAX_MODEL_LEN = 96
BLOCKS = 40
STEPS = {
    "a decode": [(1, 20)],
    "a decode, a leap and a first token": [(1, 40), (2, 3), (1, 0)],
    "a chunk of a prompt alone": [(3, 9)],
    "more than any graph holds": [(4, 7), (1, 3)],
}
"""Length and start of each span."""


class Launches:
    """Replaces a graph: a replay repeats the launches."""

    def __init__(self, launch: Callable[[], None]) -> None:
        self.replay = launch


def step_of(
    spans: list[tuple[int, int]],
    *,
    all_rows: bool = False,
    trees: bool = False,
    vision_input: SpanImages | None = None,
) -> StepArrays:
    """A step of these spans; with ``trees`` each is a tree of two branches."""
    blocks = iter(range(BLOCKS))
    made = [
        Span(
            range(10 * i, 10 * i + length),
            start,
            [[next(blocks) for _ in range(6)]],
            vision_input=vision_input,
            tree=[max(-1, index - 2) for index in range(length)] if trees else (),
        )
        for i, (length, start) in enumerate(spans, start=1)
    ]
    rows = [
        (i, at)
        for i, (length, _) in enumerate(spans)
        for at in range(0 if all_rows else length - 1, length)
    ]
    return lay_out(planned(made, rows), BLOCK)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(tmp_path_factory.mktemp("llama"))


class Model:
    """A tiny Llama and a cache with random numbers, run by the CPU or by ``CudaSteps``."""

    def __init__(self, folder: Path) -> None:
        name = save_config(folder, "llama")
        self._plain, self._plain_route = eager_model(name), AttentionRoute()
        probe_layers(self._plain, self._plain_route, RecurrentRoute(self._plain))
        self._model = eager_model(name).to(DEVICE)  # type: ignore[arg-type]
        self._route = AttentionRoute()
        self.shapes = probe_layers(self._model, self._route, RecurrentRoute(self._model))
        torch.manual_seed(0)
        self.storage = on_device(make_storage(self.shapes, BLOCKS))

    def expected(self, step: StepArrays) -> Tensor:
        """Logits by the CPU attention."""
        copy = replace(
            self.storage,
            device=CPU,
            keys={layer: each.cpu().clone() for layer, each in self.storage.keys.items()},
            values={layer: each.cpu().clone() for layer, each in self.storage.values.items()},
        )
        return RaggedForward(
            self._plain, self._plain_route, RecurrentRoute(self._plain), CpuAttention(copy)
        ).run(step)

    def steps(
        self, make_capture: Callable[[], Capture] = lambda: Launches, *, tokens: int = 4
    ) -> CudaSteps:
        attention = TritonAttention(
            self.storage, self.shapes, max_model_len=MAX_MODEL_LEN, device=SMALL
        )
        return CudaSteps(
            RaggedForward(self._model, self._route, RecurrentRoute(self._model), attention),
            attention,
            max_graph_tokens=tokens,
            max_model_len=MAX_MODEL_LEN,
            capture=make_capture,
        )


def test_padding_is_a_quarter_at_most_and_graphs_are_few() -> None:
    buckets = make_buckets(512)
    assert len(buckets) <= 32
    sizes = sorted({bucket.tokens for bucket in buckets})
    assert sizes[0] == 1
    assert sizes[-1] == 512
    for below, size in pairwise(sizes):
        assert size <= 16 or size <= below * 1.5
        assert size <= 64 or size <= below * 1.25


def test_a_step_of_any_spans_goes_to_the_smallest_bucket_it_fits_in() -> None:
    buckets = make_buckets(160)
    assert choose_bucket(buckets, 1, 1) == Bucket(1, 1)
    assert choose_bucket(buckets, 65, 65) == Bucket(80, 80)
    assert choose_bucket(buckets, 129, 40) == Bucket(160, 40)
    assert choose_bucket(buckets, 129, 41) == Bucket(160, 160)
    assert choose_bucket(buckets, 161, 1) is None


@pytest.fixture(scope="module")
def prepared(model: Model) -> CudaSteps:
    steps = model.steps()
    steps.prepare()
    for part in (*model.storage.keys.values(), *model.storage.values.values()):
        assert not part[: BLOCKS * BLOCK].any(), "the cache must be zero after ``prepare``"
        part.normal_()
    return steps


@pytest.mark.parametrize("name", STEPS)
def test_a_padded_step_gives_the_logits_of_the_step(
    model: Model, prepared: CudaSteps, name: str
) -> None:
    step = step_of(STEPS[name])
    fitting = prepared.find_bucket(step)
    assert (fitting is None) == (name == "more than any graph holds")
    expected = model.expected(step)
    torch.testing.assert_close(prepared.run(step).cpu(), expected, atol=1e-4, rtol=1e-4)


def test_a_step_with_trees_is_launched_as_it_is(prepared: CudaSteps, model: Model) -> None:
    spans = [(3, 11), (1, 3)]
    assert prepared.find_bucket(step_of(spans, all_rows=True)) is not None
    step = step_of(spans, all_rows=True, trees=True)
    assert prepared.find_bucket(step) is None
    expected = model.expected(step)
    torch.testing.assert_close(prepared.run(step).cpu(), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("trees", [False, True], ids=["replayed", "not"])
def test_tokens_may_stand_elsewhere_for_the_model_than_in_the_cache(
    prepared: CudaSteps, model: Model, trees: bool
) -> None:
    spans = [(3, 11), (1, 3)]
    plain = model.expected(step_of(spans, all_rows=True, trees=trees))
    step = step_of(spans, all_rows=True, trees=trees, vision_input=SpanImages(shift=-3))
    assert (prepared.find_bucket(step) is None) == trees
    expected = model.expected(step)
    assert (expected - plain).abs().max() > 0.01
    torch.testing.assert_close(prepared.run(step).cpu(), expected, atol=2e-4, rtol=1e-4)


def test_a_step_that_shows_an_image_is_launched_as_it_is(prepared: CudaSteps) -> None:
    image = PromptImage(PreparedImage(b"", (0, 0), {}), ((12, 2),))
    assert prepared.find_bucket(step_of([(3, 11)], vision_input=SpanImages([image]))) is None
    assert prepared.find_bucket(step_of([(3, 20)], vision_input=SpanImages([image]))) is not None
    axes = np.zeros((3, 2), dtype=np.int64)
    assert prepared.find_bucket(step_of([(3, 11)], vision_input=SpanImages(axes=axes))) is None


@pytest.mark.parametrize("spans", [[(1, 20), (2, 3)], [(1, 20), (6, 3)]], ids=["replayed", "not"])
def test_a_token_that_the_step_before_drew_is_read_on_the_device(
    model: Model, prepared: CudaSteps, spans: list[tuple[int, int]]
) -> None:
    known = step_of(spans)
    ids, drawn_rows = known.token_ids.copy(), known.drawn_rows.copy()
    drawn = torch.tensor([50, 51, 52], device=DEVICE)
    ids[0], drawn_rows[0] = 0, 2
    to_come = replace(known, token_ids=ids, drawn_rows=drawn_rows)
    ids = ids.copy()
    ids[0] = 52
    expected = model.expected(replace(known, token_ids=ids))
    torch.testing.assert_close(prepared.run(to_come, drawn).cpu(), expected, atol=1e-4, rtol=1e-4)


def test_a_failed_draw_is_read_as_token_zero(model: Model, prepared: CudaSteps) -> None:
    step = step_of([(1, 20), (1, 3)])
    lost = replace(step, drawn_rows=np.array([0, -1]))
    expected = model.expected(replace(step, token_ids=np.array([0, step.token_ids[1]])))
    found = prepared.run(lost, torch.tensor([-1], device=DEVICE))
    torch.testing.assert_close(found.cpu(), expected, atol=1e-4, rtol=1e-4)


def test_a_span_says_which_draw_of_the_step_before_is_its_token() -> None:
    spans = [Span([7, 8], 3, [range(2)]), Span([0], 5, [range(2, 4)], drawn_by=4)]
    assert lay_out(spans, BLOCK).drawn_rows.tolist() == [-1, -1, 4]


def test_padding_writes_to_the_spare_block_and_comes_out_as_zeros(prepared: CudaSteps) -> None:
    attention = prepared.attention
    step = step_of([(1, 20), (2, 3)])
    attention.storage.keys[0].normal_()
    before = attention.storage.keys[0].clone()
    prepared.run(step)
    changed = (attention.storage.keys[0] != before).flatten(1).any(1).nonzero().flatten().tolist()
    spare = attention.spare_slots[0]
    assert changed == sorted([*step.slots[0].tolist(), spare])
    query = torch.randn(4, 4, 8, device=DEVICE)
    out = attention.attend_stored(0, query, AttentionOptions(0.3, None, None, None))
    assert out[:3].abs().sum((1, 2)).min() > 0
    assert not out[3].any()


class OneLayer:
    """A forward pass of one tiny attention layer, which is quick to interpret."""

    def __init__(self, attention: TritonAttention, shape: LayerShape, *, differs: bool) -> None:
        """With ``differs`` each pass adds other noise to its logits."""
        torch.manual_seed(0)
        self._differs = differs
        self._attention = attention
        self._shape = shape
        heads = shape.kv_heads * (shape.group + 2)
        self._embed = torch.randn(64, heads, shape.key_dim).to(DEVICE)
        self._out = torch.randn(shape.kv_heads * shape.group * shape.value_dim, 12).to(DEVICE)

    def compute(self, token_ids: Tensor, positions: Tensor, logits_rows: Tensor) -> Tensor:
        heads = self._embed[token_ids[0]] * (1 + positions[0, :, None, None] % 7)
        kv = self._shape.kv_heads
        parts = heads.transpose(0, 1).tensor_split((kv * self._shape.group, -kv))
        query, key, value = parts
        out = self._attention.attend(0, query, key, value, AttentionOptions(0.1, None, None, None))
        logits = (out.flatten(1) @ self._out)[logits_rows]
        return logits + 1e-3 * torch.randn_like(logits) if self._differs else logits


class RecurrentLayer:
    """A forward pass of a tiny layer with a convolution and a delta rule, without a KV cache."""

    def __init__(self, scan: TritonScan) -> None:
        torch.manual_seed(0)
        self._scan = scan
        self._embed, self._filter = torch.randn(64, 48).to(DEVICE), torch.randn(48, 4).to(DEVICE)
        self._out = torch.randn(16, 12).to(DEVICE)

    def compute(self, token_ids: Tensor, positions: Tensor, logits_rows: Tensor) -> Tensor:
        x = self._scan.convolve(0, self._embed[token_ids[0]], self._filter, None, "silu")
        query, key, value = x.view(-1, 3, 2, 8).unbind(1)
        decay, rate = -x[:, :2].abs(), x[:, 2:4].sigmoid()
        out = self._scan.delta_rule(0, DeltaRule(query, key, value, decay, rate, True))
        return (out.flatten(1) @ self._out)[logits_rows]


def recurrent_layer(capture: Capture, tokens: int = 4) -> CudaSteps:
    slots = StateSlots(12, 64)
    states = allocate_states({0: StateShape((3, 48), torch.float32, (2, 8, 8))}, slots, DEVICE)
    attention = TritonAttention(
        allocate_groups({}, [], block_size=BLOCK, device=DEVICE),
        {},
        max_model_len=40,
        recurrent=True,
        device=SMALL,
    )
    forward: Any = RecurrentLayer(TritonScan(states, attention))
    return CudaSteps(
        forward,
        attention,
        max_graph_tokens=tokens,
        max_model_len=40,
        states=states,
        capture=lambda: capture,
    )


def test_graphs_of_a_model_with_states_alone_pass_the_comparison() -> None:
    steps = recurrent_layer(Launches, 16)
    steps.prepare()
    assert steps.count == len(make_buckets(16))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("reads", "differs from the same launches"),
        ("rows", "differs from the same launches"),
        ("save_slots", "in the states it saves"),
        ("save_rows", "in the states it saves"),
    ],
)
def test_a_graph_that_reads_or_saves_other_states_is_refused(part: str, message: str) -> None:
    def breaks(step: DeviceStep) -> DeviceStep:
        states: Any = step.states
        return replace(step, states=replace(states, **{part: getattr(states, part).clone()}))

    steps = recurrent_layer(broken_in(0, breaks))
    with pytest.raises(UnsupportedModel, match=rf"a step of 4 tokens .* CUDA graph, .*{message}"):
        steps.prepare()


def one_layer(
    capture: Capture, tokens: int = 4, *, differs: bool = False, must_capture: bool = False
) -> CudaSteps:
    shape = LayerShape(1, 16, 16, 2, torch.float32)
    attention = TritonAttention(
        on_device(make_storage({0: shape}, BLOCKS)), {0: shape}, max_model_len=40, device=SMALL
    )
    forward: Any = OneLayer(attention, shape, differs=differs)
    return CudaSteps(
        forward,
        attention,
        max_graph_tokens=tokens,
        max_model_len=40,
        capture=lambda: capture,
        must_capture=must_capture,
    )


def test_sound_graphs_pass_the_comparison() -> None:
    steps = one_layer(Launches)
    steps.prepare()
    assert steps.count == len(make_buckets(4)) == 3


def broken_in(bucket: int, breaks: Callable[[DeviceStep], DeviceStep]) -> Capture:
    """A capture that replays graph number ``bucket`` with the buffers of a changed step."""
    captured = iter(range(100))

    def capture(launch: Callable[[], None]) -> Replay:
        if next(captured) != bucket:
            return Launches(launch)
        cells = dict(zip(launch.__code__.co_freevars, launch.__closure__ or (), strict=True))
        step = cells["step"].cell_contents
        held = breaks(step)

        def replay() -> None:
            cells["step"].cell_contents = held
            launch()
            cells["step"].cell_contents = step

        return Launches(replay)

    return capture


def lists_of_another_step(step: DeviceStep) -> DeviceStep:
    """The step with copies of its lists, as read by a graph whose own lists were freed."""
    waves = [
        [
            DeviceWave(
                wave.counts.clone(),
                *[
                    None if each is None else each.clone()
                    for each in (wave.short, wave.long, wave.merges)
                ],
            )
            for wave in kind
        ]
        for kind in step.waves
    ]
    return replace(step, waves=waves)


@pytest.mark.parametrize(
    "breaks",
    [
        lists_of_another_step,
        lambda step: replace(step, token_ids=step.token_ids.clone()),
        lambda step: replace(step, slots=[slots.clone() for slots in step.slots]),
        lambda step: replace(step, tables=step.tables.clone()),
        lambda step: replace(step, logits_rows=step.logits_rows.clone()),
    ],
    ids=["lists", "token ids", "slots", "tables", "rows"],
)
def test_a_graph_that_reads_what_is_not_its_step_is_refused_and_named(
    breaks: Callable[[DeviceStep], DeviceStep],
) -> None:
    steps = one_layer(broken_in(0, breaks))
    with pytest.raises(UnsupportedModel, match=r"a step of 4 tokens .* CUDA graph, .* cuda_graphs"):
        steps.prepare()


@pytest.mark.parametrize("differs", [False, True])
def test_a_model_that_differs_from_time_to_time_is_compared_less_strictly(differs: bool) -> None:
    def noisy(launch: Callable[[], None]) -> Replay:
        logits = dict(zip(launch.__code__.co_freevars, launch.__closure__ or (), strict=True))

        def replay() -> None:
            launch()
            buffer = logits["logits"].cell_contents
            buffer += 0.01 * buffer.std() * torch.randn_like(buffer)

        return Launches(replay)

    steps = one_layer(noisy, differs=differs)
    if differs:
        steps.prepare()
        return
    with pytest.raises(UnsupportedModel, match=r"relative error 0\."):
        steps.prepare()


def test_trials_take_contexts_that_a_graph_has_room_for() -> None:
    trials = TrialSteps(make_storage({0: LayerShape(1, 16, 16, 2, torch.float32)}, 400), 6000)

    def longest(step: StepArrays) -> int:
        return max(span.end for span in step.spans)

    assert longest(trials.step(64, 8)) > 1200
    step, found = trials.step_that(lambda step: longest(step) <= 200 or None, 64, 8)
    assert found
    assert (len(step.token_ids), len(step.logits_rows)) == (64, 8)
    written = [slot // BLOCK for slot in step.slots[0].tolist()]
    read = {b for span in step.spans for b in span.blocks[0][: span.start // BLOCK].tolist()}
    assert not read & set(written), "no span writes blocks that another reads"
    alone = TrialSteps(make_storage({0: LayerShape(1, 16, 16, 2, torch.float32)}, 1), 16)
    assert len(alone.step(8, 8).token_ids) == 1


def test_a_graph_that_writes_nothing_is_refused() -> None:
    class Nothing:
        def __init__(self, launch: Callable[[], None]) -> None:
            pass

        def replay(self) -> None:
            pass

    with pytest.raises(UnsupportedModel, match=r"a step of 4 tokens .*relative error nan"):
        one_layer(Nothing).prepare()


def test_a_graph_that_a_later_capture_or_replay_harms_is_refused() -> None:
    replays: list[object] = []

    class Shared:
        """A graph that is right at its first replay only."""

        def __init__(self, launch: Callable[[], None]) -> None:
            self._launch = launch

        def replay(self) -> None:
            replays.append(self)
            if replays.count(self) == 1:
                self._launch()

    with pytest.raises(UnsupportedModel, match=r"a step of 1 tokens"):
        one_layer(Shared).prepare()
    assert len(replays) == 4, "all are replayed once, then again, the last one captured first"


def test_a_model_that_cannot_be_captured_runs_without_graphs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def waits(launch: Callable[[], None]) -> Replay:
        raise RuntimeError("operation not permitted when stream is capturing")

    steps = one_layer(waits)
    steps.prepare()
    assert steps.count == 0
    assert "not permitted when stream is capturing" in caplog.text
    steps.run(step_of([(2, 3)]))
    with pytest.raises(UnsupportedModel, match="set cuda_graphs to false"):
        one_layer(waits, must_capture=True).prepare()  # as on several ranks


def test_out_of_memory_during_a_capture_is_raised() -> None:
    def no_room(launch: Callable[[], None]) -> Replay:
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        one_layer(no_room).prepare()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="replaying a graph needs a GPU")
def test_replayed_steps_give_the_logits_of_plain_steps(tmp_path: Path) -> None:
    model = Model(tmp_path)
    steps = model.steps(GraphCapture, tokens=64)
    steps.prepare()
    assert steps.count == len(make_buckets(64))
    for spans in STEPS.values():
        step = step_of(spans)
        expected = model.expected(step)
        torch.testing.assert_close(steps.run(step).cpu(), expected, atol=1e-4, rtol=1e-4)
