"""The Triton kernels against the CPU attention: on a GPU if there is one, else interpreted."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction, create_function_from_signature

from app.core.errors import UnsupportedModel
from app.core.images import PreparedImage, PromptImage, TwoWay
from app.core.step import Span, SpanImages
from app.model.cpu.attention import CpuAttention
from app.model.cuda import attention as attention_module
from app.model.cuda import step_buffers
from app.model.cuda.attention import TritonAttention
from app.model.cuda.graphs import CudaSteps
from app.model.cuda.tiles import Device, Heads, long_tile
from app.model.cuda.trial_steps import TrialSteps
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import CacheGroup, KvStorage, LayerShape, allocate_groups
from app.model.layers.attention import AttentionOptions
from app.model.layers.latent import LatentHeads
from tests.model.compiled_mode import in_compiled_mode
from tests.model.interpreter import DEVICE
from tests.model.trees import random_tree

CPU = torch.device("cpu")
BLOCK = 16
SMALL = Device(multiprocessors=1, shared_bytes=99 << 10, capability=8)

SHAPES = {
    "grouped heads": LayerShape(2, 16, 16, 3, torch.float32),
    "odd dimensions": LayerShape(2, 24, 12, 1, torch.float32),
    "a group of seven": LayerShape(1, 16, 16, 7, torch.float32),
    "a group of thirty-two": LayerShape(1, 16, 16, 32, torch.float32),
    "latents": LayerShape(1, 28, 20, 6, torch.float32, latent=True),
    "latents of forty heads": LayerShape(1, 576, 512, 40, torch.float32, latent=True),
}

BATCH = [(9, 20), (5, 10), (1, 7), (1, 40), (3, 0), (30, 3)]
"""Length and start of each span: a leap, an extension, two decodes and two prefills."""

FAR = [(1, 700), (3, 530), (30, 1010)]
"""The same for spans with several chunks of keys; the last one is computed in long tiles."""

SINKS = torch.tensor([1.0, -1.0, 0.5, 2.0, 0.0, 3.0])
SLOPES = torch.rand(6, generator=torch.Generator().manual_seed(1))
NEAR = torch.randn(700, 6, 9, generator=torch.Generator().manual_seed(2))
"""Biases by distance, for the largest number of tokens of a step here."""

OPTIONS = {
    "plain": AttentionOptions(0.3, None, None, None),
    "window": AttentionOptions(0.3, 9, None, None),
    "softcap": AttentionOptions(0.3, None, 2.0, None),
    "sinks": AttentionOptions(0.3, None, None, SINKS),
    "everything": AttentionOptions(0.3, 300, 3.0, SINKS),
    "chunked": AttentionOptions(0.3, 9, None, None, chunked=True),
    "slopes": AttentionOptions(0.3, None, None, None, slopes=SLOPES),
    "near": AttentionOptions(0.3, None, None, None, near=NEAR),
}


def make_step(
    batch: Sequence[tuple[int, int]],
    dice: random.Random,
    window: int | None = None,
    trees: Sequence[int] = (),
    images: Mapping[int, Sequence[tuple[int, int]]] | None = None,
    two_way: TwoWay | None = None,
) -> StepArrays:
    """A step of spans with these lengths and starts, on shuffled blocks; unread blocks are 0.

    ``trees`` are the indices of spans that are trees; ``images``, by index, places of images.
    """
    needed = [-(-(start + length) // BLOCK) for length, start in batch]
    pool = list(range(1, sum(needed) + 1))
    dice.shuffle(pool)
    spans = []
    for number, ((length, start), count) in enumerate(zip(batch, needed, strict=True)):
        table = [pool.pop() for _ in range(count)]
        given_back = 0 if window is None else max(0, start - window + 1) // BLOCK
        table[:given_back] = [0] * given_back
        tree = random_tree(dice, length) if number in trees else ()
        vision_input = None
        if images is not None and number in images:
            image = PreparedImage(b"", (), {})
            vision_input = SpanImages([PromptImage(image, images[number], two_way)])
        spans.append(Span([1] * length, start, [table], tree=tree, vision_input=vision_input))
    return lay_out(spans, BLOCK)


def make_storage(
    shapes: Mapping[int, LayerShape], blocks: int, window: int | None = None
) -> KvStorage:
    """Storage of one group of layers, with random keys and values."""

    groups = (CacheGroup(layers=tuple(shapes), num_blocks=blocks, window=window),)
    storage = allocate_groups(shapes, groups, block_size=BLOCK, device=CPU)
    for tensor in (*storage.keys.values(), *storage.values.values()):
        tensor.normal_()
    return storage


def on_device(storage: KvStorage) -> KvStorage:
    keys = {layer: each.clone().to(DEVICE) for layer, each in storage.keys.items()}
    values = {
        layer: keys[layer][..., : each.shape[2]]
        if storage.is_latent(layer)
        else each.clone().to(DEVICE)
        for layer, each in storage.values.items()
    }
    return replace(storage, device=DEVICE, keys=keys, values=values)


def new_heads(shape: LayerShape, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of a step's tokens."""
    q_heads = shape.kv_heads * shape.group
    return (
        torch.randn(q_heads, tokens, shape.key_dim).to(shape.dtype),
        torch.randn(shape.kv_heads, tokens, shape.key_dim).to(shape.dtype),
        torch.randn(shape.kv_heads, tokens, shape.value_dim).to(shape.dtype),
    )


def there(options: AttentionOptions) -> AttentionOptions:
    sinks = None if options.sinks is None else options.sinks.to(DEVICE)
    slopes = None if options.slopes is None else options.slopes.to(DEVICE)
    latent = options.latent
    if latent is not None:
        latent = LatentHeads(latent.keys.to(DEVICE), latent.values.to(DEVICE))
    near = None if options.near is None else options.near.to(DEVICE)
    return replace(options, sinks=sinks, slopes=slopes, latent=latent, near=near)


def latent_heads(shape: LayerShape, nope: int = 5, value_dim: int = 7) -> LatentHeads:
    count, rank = shape.group, shape.value_dim
    return LatentHeads(
        torch.randn(count, nope, rank) / rank**0.5, torch.randn(count, rank, value_dim)
    )


def compare(
    shape: LayerShape,
    options: AttentionOptions,
    step: StepArrays,
    *,
    batch_invariant: bool = False,
    limits: Device = SMALL,
    close: float = 1e-4,
) -> None:
    """Assert that the results of a step, and what it stores, are those of the CPU attention."""
    if shape.latent:
        options = replace(options, latent=latent_heads(shape))
    blocks = 1 + sum(len(span.blocks[0]) for span in step.spans)
    storage = make_storage({0: shape}, blocks, options.window)
    copy = on_device(storage)
    query, key, value = new_heads(shape, len(step.token_ids))
    if shape.latent:
        query = query[..., : 5 + shape.key_dim - shape.value_dim]
    cpu = CpuAttention(storage)
    cpu.begin(step)
    expected = cpu.attend(
        0, query, key, key[..., : shape.value_dim] if shape.latent else value, options
    )

    device = TritonAttention(
        copy,
        {0: shape},
        max_model_len=2048,
        batch_invariant=batch_invariant,
        device=limits,
        partial_tokens=1,
    )
    device.begin(step)
    query, key, value = (part.to(DEVICE) for part in (query, key, value))
    found = device.attend(
        0, query, key, key[..., : shape.value_dim] if shape.latent else value, there(options)
    )
    torch.testing.assert_close(found.cpu(), expected, atol=close, rtol=1e-4)
    for ours, theirs in ((copy.keys, storage.keys), (copy.values, storage.values)):
        torch.testing.assert_close(ours[0].cpu(), theirs[0])


@pytest.mark.parametrize(
    ("shape", "option", "batch", "batch_invariant"),
    [
        *(("grouped heads", option, BATCH, False) for option in OPTIONS),
        ("grouped heads", "plain", FAR, False),
        ("grouped heads", "everything", FAR, False),
        ("grouped heads", "everything", FAR, True),
        ("grouped heads", "chunked", FAR, True),
        ("odd dimensions", "plain", BATCH, False),
        ("a group of seven", "plain", BATCH, False),
        ("a group of thirty-two", "plain", BATCH, False),
        ("odd dimensions", "window", FAR, False),
        ("odd dimensions", "plain", BATCH, True),
    ],
)
def test_the_kernels_give_what_the_cpu_attention_gives(
    shape: str, option: str, batch: Sequence[tuple[int, int]], batch_invariant: bool
) -> None:
    torch.manual_seed(0)
    options = OPTIONS[option]
    step = make_step(batch, random.Random(0), options.window)
    compare(SHAPES[shape], options, step, batch_invariant=batch_invariant, close=2e-5)


@pytest.mark.parametrize(
    ("shape", "option", "batch_invariant"),
    [
        ("grouped heads", "plain", False),
        ("grouped heads", "everything", False),
        ("grouped heads", "everything", True),
        ("grouped heads", "chunked", False),
        ("grouped heads", "slopes", False),
        ("latents", "everything", False),
    ],
)
def test_trees_are_what_they_are_on_the_cpu(shape: str, option: str, batch_invariant: bool) -> None:
    torch.manual_seed(0)
    options = OPTIONS[option]
    batch = [(9, 20), (1, 7), (40, 30), (3, 0), (5, 290), (18, 3)]
    step = make_step(batch, random.Random(option), options.window, trees=(0, 2, 3, 4))
    compare(SHAPES[shape], options, step, batch_invariant=batch_invariant)


@pytest.mark.parametrize("two_way", ["all", "windows"])
@pytest.mark.parametrize(
    ("option", "batch_invariant"),
    [
        ("plain", False),
        ("plain", True),
        ("window", False),
        ("everything", False),
        ("everything", True),
    ],
)
def test_images_whose_tokens_see_one_another_are_what_they_are_on_the_cpu(
    option: str, batch_invariant: bool, two_way: TwoWay
) -> None:
    torch.manual_seed(0)
    options, dice = OPTIONS[option], random.Random(option)
    batch = [(9, 20), (1, 7), (40, 30), (150, 5), (330, 290)]
    images = {2: [(25, 20), (50, 3)], 3: [(5, 3), (20, 100), (121, 34)], 4: [(310, 290)]}
    step = make_step(batch, dice, options.window, trees=(0,), images=images, two_way=two_way)
    compare(SHAPES["grouped heads"], options, step, batch_invariant=batch_invariant)


@pytest.mark.parametrize(
    ("shape", "option", "batch"),
    [
        *(("latents", option, BATCH) for option in OPTIONS if option != "near"),
        ("latents", "everything", FAR),
        # Its float32 kernels take minutes to compile for a GPU; it is served in half precision.
        *[("latents of forty heads", "plain", [(2, 3), (1, 300), (9, 20)])][: DEVICE == CPU],
    ],
)
def test_the_kernels_read_latents_as_the_cpu_attention_does(
    shape: str, option: str, batch: Sequence[tuple[int, int]]
) -> None:
    torch.manual_seed(0)
    step = make_step(batch, random.Random(0), OPTIONS[option].window)
    large = Device(multiprocessors=1, shared_bytes=227 << 10, capability=9)
    compare(SHAPES[shape], OPTIONS[option], step, limits=large)


def attention_of(
    storage: KvStorage, layer: LayerShape, *, batch_invariant: bool = False, limits: Device = SMALL
) -> TritonAttention:
    return TritonAttention(
        storage, {0: layer}, max_model_len=2048, batch_invariant=batch_invariant, device=limits
    )


def rows_of(
    attention: TritonAttention, options: AttentionOptions, query: Tensor, spans: Sequence[Span]
) -> list[Tensor]:
    """Output rows of each span; ``query`` [Hq, positions, D] has the queries of the first one."""
    step = lay_out(spans, BLOCK)
    attention.begin(step)
    columns = [torch.from_numpy(step.positions)[: len(spans[0].tokens)]]
    columns += [torch.zeros(len(step.token_ids) - len(columns[0]), dtype=torch.long)]
    out = attention.attend_stored(0, query[:, torch.cat(columns)].to(DEVICE), options)
    return [out[span.row : span.row + span.length].cpu() for span in step.spans]


OTHERS = [Span([1] * 20, 90, [range(7)]), Span([1], 400, [range(7, 33)])]


@pytest.mark.parametrize("option", ["plain", "everything"])
@pytest.mark.parametrize("batch_invariant", [False, True], ids=["", "batch-invariant"])
def test_a_row_is_the_same_bit_by_bit_in_any_company(option: str, batch_invariant: bool) -> None:
    torch.manual_seed(0)
    layer, options = SHAPES["grouped heads"], OPTIONS[option]
    storage = on_device(make_storage({0: layer}, 110, options.window))
    attention = attention_of(storage, layer, batch_invariant=batch_invariant)
    query, table = torch.randn(6, 1100, 16), [*range(40, 109)]
    span = Span([1] * 3, 1097, [table])
    (alone,) = rows_of(attention, options, query, [span])
    in_company, *_ = rows_of(attention, options, query, [span, *OTHERS])
    assert torch.equal(alone, in_company)


@pytest.mark.parametrize("option", ["plain", "everything"])
def test_batch_invariant_a_row_is_the_same_bit_by_bit_in_a_span_of_any_length(
    option: str,
) -> None:
    torch.manual_seed(0)
    layer, options = SHAPES["grouped heads"], OPTIONS[option]
    storage = on_device(make_storage({0: layer}, 80, options.window))
    attention = attention_of(storage, layer, batch_invariant=True)
    query, table = torch.randn(6, 1100, 16), [*range(69)]
    (chunk,) = rows_of(attention, options, query, [Span([1] * 24, 1010, [table])])
    (leap,) = rows_of(attention, options, query, [Span([1] * 7, 1020, [table])])
    (decode,) = rows_of(attention, options, query, [Span([1], 1024, [table])])
    assert torch.equal(chunk[10:17], leap)
    assert torch.equal(chunk[14:15], decode)


def test_query_key_and_value_may_be_slices_of_one_product() -> None:
    torch.manual_seed(0)
    layer = SHAPES["grouped heads"]
    step = make_step([(2, 20), (1, 3)], random.Random(0))
    storage = make_storage({0: layer}, 8)
    whole = torch.randn(3, (6 + 2 + 2) * 16).to(DEVICE).view(3, 10, 16).transpose(0, 1)
    query, key, value = whole[:6], whole[6:8], whole[8:]
    expected, found = (on_device(storage) for _ in range(2))
    attention = attention_of(found, layer)
    attention.begin(step)
    results = [attention.attend(0, query, key, value, OPTIONS["plain"])]
    attention = attention_of(expected, layer)
    attention.begin(step)
    results += [
        attention.attend(
            0, query.contiguous(), key.contiguous(), value.contiguous(), OPTIONS["plain"]
        )
    ]
    assert torch.equal(*results)
    assert torch.equal(found.keys[0], expected.keys[0])
    assert torch.equal(found.values[0], expected.values[0])


def test_layers_of_two_cache_groups_have_slots_and_tables_of_their_own() -> None:
    torch.manual_seed(0)
    shape = SHAPES["grouped heads"]
    windows, options = (None, 9), (OPTIONS["plain"], OPTIONS["window"])
    tables = [[3, 4], [0, 6]]
    alone = [on_device(make_storage({0: shape}, 8, window)) for window in windows]
    both = KvStorage(
        device=DEVICE,
        block_size=BLOCK,
        groups=tuple(
            CacheGroup(layers=(i,), num_blocks=8, window=window) for i, window in enumerate(windows)
        ),
        keys={i: each.keys[0].clone() for i, each in enumerate(alone)},
        values={i: each.values[0].clone() for i, each in enumerate(alone)},
    )
    attention = TritonAttention(both, {0: shape, 1: shape}, max_model_len=2048, device=SMALL)
    step = lay_out([Span([1] * 2, 28, tables)], BLOCK)
    attention.begin(step)
    query, key, value = (part.to(DEVICE) for part in new_heads(shape, 2))
    for layer in range(2):
        single = attention_of(alone[layer], shape)
        single.begin(lay_out([Span([1] * 2, 28, [tables[layer]])], BLOCK))
        expected = single.attend(0, query, key, value, options[layer])
        assert torch.equal(attention.attend(layer, query, key, value, options[layer]), expected)
        assert attention.slots(layer).tolist() == step.slots[layer].tolist()


class Launches:
    """Replaces a kernel: records the arguments for which Triton would compile variants."""

    def __init__(self, kernel: Any, seen: set[str]) -> None:
        given = getattr(kernel, "kwargs", {})  # of an interpreted kernel; others have none
        self._kernel = JITFunction(kernel.fn, **{k: v for k, v in given.items() if v is not None})
        backend = make_backend(GPUTarget("cuda", 90, 32))
        self._bind = create_function_from_signature(
            self._kernel.signature, self._kernel.params, backend
        )
        self._seen = seen

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, **constants: Any) -> None:
            assert all(0 < size < 1 << 16 for size in grid)
            bound, kinds, options = self._bind(*arguments, **constants)
            values = [
                bound[name]
                for name, (kind, _) in zip(bound, kinds, strict=True)
                if kind == "constexpr"
            ]
            self._seen.add(f"{self._kernel.__name__} {kinds} {values} {options}")

        return launch


def test_no_step_launches_a_kind_of_kernel_that_was_not_there_after_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: set[str] = set()
    for module, names in (
        (attention_module, ("paged_attention", "merge_chunks", "store_keys_and_values")),
        (step_buffers, ("take_drawn",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, Launches(getattr(module, name), seen))
    layers = {0: SHAPES["grouped heads"], 1: SHAPES["odd dimensions"], 2: SHAPES["latents"]}
    storage = make_storage(layers, 2000)
    attention = TritonAttention(storage, layers, max_model_len=20_000, device=SMALL)
    dice = random.Random(0)

    def compute(token_ids: Tensor, positions: Tensor, logits_rows: Tensor) -> Tensor:
        tokens = token_ids.shape[1]
        for layer, shape in layers.items():
            query, key, value = new_heads(shape, tokens)
            if dice.random() < 0.5:  # in memory by token, as in some models
                query, key, value = (
                    part.transpose(0, 1).contiguous().transpose(0, 1)
                    for part in (query, key, value)
                )
            attention.attend(layer, query, key, value, OPTIONS["plain"])
        return torch.zeros(len(logits_rows), 8)

    forward: Any = SimpleNamespace(compute=compute)
    steps = CudaSteps(forward, attention, max_graph_tokens=0, max_model_len=20_000)
    steps.prepare()
    after_loading = set(seen)
    assert len(after_loading) == 6 * len(layers) + 1
    trials = TrialSteps(storage, 20_000)
    for _ in range(1000):
        step = trials.step(dice.choice([1, 2, 3, 16, 17, 64, 300]), 3)
        if dice.random() < 0.3:
            step = make_step([(9, 20), (1, 7), (40, 30)], dice, trees=(0, 2))
        steps.run(step, torch.zeros(5, dtype=torch.long) if dice.random() < 0.5 else None)
    assert seen == after_loading

    wave = attention.step.waves[0][0]
    assert wave.counts is not None
    shifted = torch.zeros(9, dtype=torch.int32)[1:5]
    attention.begin_on_device(
        replace(attention.step, waves=[[replace(wave, counts=shifted)]] * len(attention.kinds))
    )
    compute(torch.zeros(1, 5), torch.zeros(1, 5), torch.zeros(1))
    assert seen > after_loading, "an unaligned list would need a variant of its own"


COMPILED = (
    "Llama 3/80",
    "Llama 3/90",
    "Llama 3/80/trees",
    "Llama 3/90/near",
    "Llama 3/100",
    "Llama 3/90/everything/trees",
    "Gemma 3/89/everything",
    "very large/89",
    "DeepSeek V3/80",
    "DeepSeek V3/90/everything",
    "DeepSeek V3/100/trees",
    "Llama 3 in 8 bits/89",
    "Llama 3 in 8 bits/90/everything/trees",
    "DeepSeek V3 in 8 bits/90",
    "DeepSeek V3 in 8 bits/100",
)
"""Shape of the heads, capability of the GPU, and further options."""


def test_the_kernels_compile_for_gpus_that_are_not_here_and_fit_into_their_shared_memory() -> None:
    output = in_compiled_mode("-m", "tests.model.compile_kernels", *COMPILED)
    compiled = [json.loads(line) for line in output.splitlines()]
    names = [each["kernel"] for each in compiled]
    assert names.count("paged_attention") == 2 * len(COMPILED)
    assert len(names) == 5 * len(COMPILED)
    for each in compiled:
        assert each["shared"] <= each["limit"], each
        assert each["kernel"] != "paged_attention" or each["shared"] <= each["reckoned"], each


def test_heads_that_no_tile_of_fits_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="do not fit in the 8192 bytes"):
        long_tile(Heads(1, 512, 512, 2), Device(1, 8 << 10, 8), batch_invariant=False)


def test_a_model_is_refused_if_a_kernel_needs_too_much_shared_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class TooLarge:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            def launch(*_: Any, **__: Any) -> None:
                raise OutOfResources(300_000, 232_448, "shared memory")

            return launch

    monkeypatch.setattr(attention_module, "paged_attention", TooLarge())
    layer = SHAPES["grouped heads"]
    attention = attention_of(on_device(make_storage({0: layer}, 4)), layer)
    attention.begin(make_step([(2, 3)], random.Random(0)))
    with pytest.raises(UnsupportedModel, match=r"300000.*232448"):
        attention.attend_stored(0, torch.randn(6, 2, 16).to(DEVICE), OPTIONS["plain"])
