"""Fused layers of the CUDA path against transformers' own: on the GPU where there is one, else
interpreted."""

from __future__ import annotations

import random
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from triton.runtime.jit import KernelInterface

from app.core.errors import UnsupportedModel
from app.core.step import LogitsRow, Span, StepPlan
from app.model.attention import AttentionOptions, AttentionRoute, probe_layers
from app.model.config import ModelConfig
from app.model.cpu.attention import CpuAttention
from app.model.cuda.attention import TritonAttention
from app.model.cuda.layers import FusedLayer, FusedNorm, fuse
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import KvStorage, allocate
from app.model.loading import load_model
from tests.model.interpreter import rounding_as_a_gpu_does
from tests.model.quick_interpreter import hasten
from tests.model.tiny import VOCAB, PagedSequence

CPU = torch.device("cpu")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    hasten()

COUNTED = pytest.mark.skipif(DEVICE.type == "cuda", reason="counted where no GPU is in the way")

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 72,
    "intermediate_size": 136,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

GEMMAS = ("gemma", "gemma2", "gemma3")
GEMMA = {"query_pre_attn_scalar": 24, "sliding_window": 7}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama with biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "llama, a head of keys for each": ("LlamaConfig", {"num_key_value_heads": 6}),
    "llama, tied embeddings": ("LlamaConfig", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {}),
    "mistral with a window": ("MistralConfig", {"sliding_window": 5}),
    "gemma": ("GemmaConfig", {}),
    "gemma2": ("Gemma2Config", {**GEMMA, "attn_logit_softcapping": 2.0}),
    "gemma3": ("Gemma3TextConfig", {**GEMMA, "sliding_window_pattern": 2}),
}

OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3": ("Phi3Config", {}),
    "llama with another activation": ("LlamaConfig", {"hidden_act": "relu"}),
}

LENGTHS = (11, 2, 5)
"""Tokens of the texts."""

ATTENTION_LAUNCHES = 3
"""Two kernels over tiles of queries and shares of keys, and one that merges."""


class StoredAttention:
    """The CPU's attention with the interface of the device's, which takes long to interpret."""

    def __init__(self, storage: KvStorage) -> None:
        self.storage = storage
        self.calls = 0
        self._attention = CpuAttention(storage, batch_invariant=True)

    def begin(self, step: StepArrays) -> None:
        self._attention.begin(step)

    def slots(self, layer: int) -> Tensor:
        return torch.from_numpy(self._attention.slots[self.storage.group_of[layer]])

    def attend_stored(self, layer: int, query: Tensor, options: AttentionOptions) -> Tensor:
        self.calls += 1
        stored = (self.storage.keys[layer], self.storage.values[layer])
        with _disable_current_modes():
            key, value = (part[self.slots(layer)].transpose(0, 1) for part in stored)
            return self._attention.attend(layer, query, key, value, options)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        return self._attention.attend(layer, query, key, value, options)


def saved(folder: Path, kind: str, **changes: Any) -> str:
    name, extra = (KINDS | OTHERS)[kind]
    getattr(transformers, name)(**{**SIZES, **extra, **changes}).save_pretrained(folder)
    return str(folder)


def loaded(folder: str, dtype: torch.dtype) -> transformers.PreTrainedModel:
    """Weights that bfloat16 can hold, in ``dtype``."""
    config = ModelConfig(model=folder, random_weights=True, device="cpu")
    model: Any = load_model(config, CPU, torch.bfloat16)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # biases are made as zeros and norms as ones
                parameter.add_(torch.randn_like(parameter) * 0.2)
    whole: transformers.PreTrainedModel = model.to(dtype)
    return whole


def fused(
    folder: str,
    dtype: torch.dtype,
    *,
    batch_invariant: bool = False,
    device_attention: bool = DEVICE.type == "cuda",
) -> tuple[transformers.PreTrainedModel, RaggedForward, Any]:
    """A model with fused layers, its forward pass and its attention."""
    route, model = AttentionRoute(), loaded(folder, dtype)
    whole: Any = model
    whole.to(DEVICE)
    shapes = probe_layers(model, route)
    assert fuse(model, route, batch_invariant=batch_invariant) == len(shapes)
    storage = allocate(shapes, num_blocks=60, block_size=4, device=DEVICE)
    attention: Any = StoredAttention(storage)
    if device_attention:
        attention = TritonAttention(
            storage, shapes, max_model_len=256, batch_invariant=batch_invariant
        )
    return model, RaggedForward(model, route, attention), attention


@pytest.fixture(autouse=True)
def exact_bfloat16() -> Iterator[None]:
    with rounding_as_a_gpu_does(), torch.inference_mode():
        yield


def run_in_random_batches(
    forward: RaggedForward, texts: list[list[int]], dice: random.Random
) -> list[Tensor]:
    """Logits [tokens, V] of each text, computed in random chunks and random company."""
    pool = list(range(60))
    dice.shuffle(pool)
    sequences = [PagedSequence(text, pool, groups=2) for text in texts]  # some have windows
    found = [torch.zeros(len(text), VOCAB) for text in texts]
    while any(s.computed < len(s.tokens) for s in sequences):
        chosen = [s for s in sequences if s.computed < len(s.tokens) and dice.random() < 0.8]
        if not chosen:
            continue
        spans: list[Span] = []
        rows: list[LogitsRow] = []
        places: list[tuple[int, int]] = []
        for sequence in chosen:
            left = len(sequence.tokens) - sequence.computed
            length = min(left, dice.choice([1, 1, 2, 5, 20]))
            for offset in range(length):
                rows.append(LogitsRow(len(spans), offset))
                places.append((sequences.index(sequence), sequence.computed + offset))
            spans.append(sequence.span(length, 4))
        logits = forward.run(lay_out(StepPlan(spans=spans, rows=rows), 4))
        for (index, position), row in zip(places, logits, strict=True):
            found[index][position] = row.float().cpu()
    return found


def error(rows: list[Tensor], exact: list[Tensor]) -> float:
    return float(
        np.mean([((a - b).norm() / b.norm()).item() for a, b in zip(rows, exact, strict=True)])
    )


@pytest.mark.parametrize(
    ("kind", "batch_invariant"),
    [*((kind, False) for kind in KINDS), ("llama with biases", True), ("gemma3", True)],
)
def test_random_batches_give_the_logits_of_transformers(
    kind: str, batch_invariant: bool, tmp_path: Path
) -> None:
    folder = saved(tmp_path, kind)
    dice = random.Random(kind)
    texts = [[dice.randrange(VOCAB) for _ in range(n)] for n in LENGTHS]
    plain = loaded(folder, torch.float32)
    plain.set_attn_implementation("eager")
    expected = [plain(torch.tensor([text])).logits[0] for text in texts]
    model, forward, _ = fused(folder, torch.float32, batch_invariant=batch_invariant)
    assert sum(isinstance(m, FusedLayer) for m in model.modules()) == SIZES["num_hidden_layers"]
    found = run_in_random_batches(forward, texts, dice)
    for rows, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(rows, wanted, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("llama with biases", torch.bfloat16),
        ("qwen3", torch.float16),
        ("qwen3", torch.bfloat16),
        ("gemma3", torch.bfloat16),
    ],
    ids=str,
)
def test_half_precision_differs_from_float32_no_more_than_transformers_does(
    kind: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    folder = saved(tmp_path, kind)
    dice = random.Random(kind)
    texts = [[dice.randrange(VOCAB) for _ in range(n)] for n in LENGTHS]
    exact_model, plain_model = loaded(folder, torch.float32), loaded(folder, dtype)
    for model in (exact_model, plain_model):
        model.set_attn_implementation("eager")
    exact = [exact_model(torch.tensor([text])).logits[0] for text in texts]
    plain = [plain_model(torch.tensor([text])).logits[0].float() for text in texts]
    _, forward, _ = fused(folder, dtype)
    found = run_in_random_batches(forward, texts, dice)
    assert error(found, exact) < 1.3 * error(plain, exact) < 0.1


@pytest.mark.parametrize(
    ("kind", "layers", "dtype"),
    [("llama", 2, torch.float32), ("gemma3", 1, torch.bfloat16)],
    ids=str,
)
def test_a_token_is_the_same_however_its_text_is_cut_and_whoever_is_beside_it(
    kind: str, layers: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    folder = saved(tmp_path, kind, num_hidden_layers=layers)
    _, forward, attention = fused(folder, dtype, batch_invariant=True, device_attention=True)
    groups = len(attention.storage.groups)
    text = list(range(20, 26))
    others = [Span((token,), 0, ((20 + token,),) * groups) for token in range(33)]
    blocks = ((0, 1),) * groups

    def logits(first: int, last: int, before: int, behind: int) -> Tensor:
        """Of ``text[first:last]``, with so many others before and behind it."""
        own = Span(text[first:last], first, blocks)
        spans = [*others[:before], own, *others[before : before + behind]]
        rows = [LogitsRow(before, offset) for offset in range(last - first)]
        return forward.run(lay_out(StepPlan(spans, rows), 4))

    alone = torch.cat([logits(i, i + 1, 0, 0) for i in range(len(text))])
    for before, behind in ((2, 0), (20, 13)):
        assert torch.equal(logits(0, 6, before, behind), alone)
    halves = [logits(0, 3, 0, 2), logits(3, 6, 3, 4)]
    assert torch.equal(torch.cat(halves), alone)


@pytest.mark.parametrize("kind", OTHERS)
def test_layers_of_another_kind_keep_their_own_code_and_have_no_invariant_mode(
    kind: str, tmp_path: Path
) -> None:
    route, model = AttentionRoute(), loaded(saved(tmp_path, kind), torch.float32)
    probe_layers(model, route)
    with pytest.raises(UnsupportedModel, match=r"for layers of Llama, Mistral, .* Gemma3"):
        fuse(model, route, batch_invariant=True)
    assert fuse(model, route, batch_invariant=False) == 0
    assert not any(isinstance(module, FusedLayer | FusedNorm) for module in model.modules())


def test_weights_in_two_types_keep_their_own_code(tmp_path: Path) -> None:
    route, model = AttentionRoute(), loaded(saved(tmp_path, "llama"), torch.float32)
    probe_layers(model, route)
    layer: Any = model.get_submodule("model.layers.1")
    layer.mlp.down_proj.bfloat16()
    assert fuse(model, route, batch_invariant=False) == 0


def test_a_layer_is_freed_before_the_next_one_is_joined(tmp_path: Path) -> None:
    folder = saved(tmp_path, "llama", num_hidden_layers=4)
    route, model = AttentionRoute(), loaded(folder, torch.float32)
    probe_layers(model, route)
    layers: Any = model.get_submodule("model.layers")
    whole = [weakref.ref(layer.mlp.up_proj.weight) for layer in layers]
    held: list[int] = []
    joined = torch.cat

    def watched(parts: Any, *args: Any, **kwargs: Any) -> Tensor:
        held.append(sum(weight() is not None for weight in whole))
        return joined(parts, *args, **kwargs)

    with mock.patch("torch.cat", watched):
        fuse(model, route, batch_invariant=False)
    assert held == [4, 4, 3, 3, 2, 2, 1, 1]
    assert not any(weight() for weight in whole)


class Launches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what a device would be given to run: torch's operations, and Triton's kernels.

    Views and allocations launch nothing.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        # Some are views of some inputs and copies of others (``to``, ``reshape``).
        same = func.is_view and result.untyped_storage().data_ptr() == (
            args[0].untyped_storage().data_ptr()
        )
        if not same and "empty" not in name and name != "detach_":
            self.names.append(name)
        return result

    def counting_kernels(self) -> Any:
        launch = KernelInterface.__getitem__

        def counted(kernel: Any, grid: Any) -> Any:
            def run(*args: Any, **kwargs: Any) -> None:
                self.names.append(kernel.fn.__name__)
                with _disable_current_modes():
                    launch(kernel, grid)(*args, **kwargs)

            return run

        return mock.patch.object(KernelInterface, "__getitem__", counted)


def launches_of_a_step(folder: str, *, batch_invariant: bool) -> tuple[list[str], int]:
    """Names of what a step launches beside its attention, and calls of the attention."""
    _, forward, attention = fused(folder, torch.bfloat16, batch_invariant=batch_invariant)
    spans = [Span([5], 0, ((0,),) * 2), Span([6, 7], 0, ((1,),) * 2)]
    attention.begin(lay_out(StepPlan(spans, []), 4))
    ids, positions = torch.tensor([[5, 6, 7]]), torch.tensor([[0, 0, 1]])
    launches = Launches()
    with launches.counting_kernels(), launches:
        forward.compute(ids, positions, 0)
    return launches.names, attention.calls


@COUNTED
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral with a window", *GEMMAS])
def test_a_layer_takes_eleven_launches_of_the_twelve_it_may(kind: str, tmp_path: Path) -> None:
    counts = []
    few, more = (2, 4) if kind == "gemma3" else (1, 2)  # Gemma 3 turns its kinds of layers apart
    for layers in (few, more):
        (folder := tmp_path / str(layers)).mkdir()
        names, calls = launches_of_a_step(
            saved(folder, kind, num_hidden_layers=layers), batch_invariant=False
        )
        assert calls == layers
        counts.append(len(names) + ATTENTION_LAUNCHES * calls)
    of_a_layer = (counts[1] - counts[0]) / (more - few)
    assert of_a_layer == 11
    assert counts[0] - few * of_a_layer <= 24, names


@COUNTED
def test_steps_of_other_sizes_ask_for_no_other_kernels(tmp_path: Path) -> None:
    """What Triton compiles a kernel for: constants, types, and of what it may specialise on whether
    it is 1 or divisible by 16."""
    _, forward, _ = fused(saved(tmp_path, "qwen3"), torch.bfloat16, batch_invariant=True)
    asked: set[Any] = set()
    launch = KernelInterface.__getitem__

    def variant(kernel: Any, args: tuple[Any, ...], constants: dict[str, Any]) -> Any:
        options = kernel.kwargs
        known: list[Any] = [kernel.fn.__name__, *sorted(constants.items())]
        for name, value in zip(kernel.arg_names, args, strict=False):
            if isinstance(value, Tensor):
                loose = name in (options["do_not_specialize_on_alignment"] or ())
                known.append((name, value.dtype, loose or value.data_ptr() % 16 == 0))
            elif isinstance(value, int) and name not in (options["do_not_specialize"] or ()):
                known.append((name, value == 1, value % 16 == 0))
        return tuple(known)

    def watched(kernel: Any, grid: Any) -> Any:
        def run(*args: Any, **constants: Any) -> None:
            asked.add(variant(kernel, args, constants))
            launch(kernel, grid)(*args, **constants)

        return run

    with mock.patch.object(KernelInterface, "__getitem__", watched):
        sizes = []
        for tokens in (1, 2, 16):
            plan = StepPlan([Span([3] * tokens, 0, (tuple(range(5)),) * 2)], [LogitsRow(0, 0)])
            forward.run(lay_out(plan, 4))
            sizes.append(len(asked))
    assert sizes == [sizes[0]] * 3, asked
