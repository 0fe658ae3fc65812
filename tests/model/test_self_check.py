"""Models that cannot be served exactly are refused when they are loaded, with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.qwen2 import modeling_qwen2

from app.core.errors import UnsupportedModel
from app.model import self_check
from app.model.composition import load_runner
from app.model.cpu.attention import CpuAttention
from app.model.cpu.kernels import panels
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import allocate
from app.model.layers.attention import AttentionOptions, AttentionRoute, probe_layers
from app.model.layers.recurrent import RecurrentRoute
from app.model.self_check import (
    _ProductsInFloat32,
    check_invariance,
    check_ragged_step,
    make_case,
    whole_logits,
    worst_error,
)
from tests.model.reach.small import small_config
from tests.model.tiny import VOCAB, eager_model, runner_config, save_config

BLOCK_SIZE = 4
RUNS = pytest.mark.skipif(not panels.runs_here(), reason="needs AVX2 on Linux")


class LosesTheCache(CpuAttention):
    """Sets the first half of all slots to zero before it attends."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        for pool in (*self.storage.keys.values(), *self.storage.values.values()):
            pool[: pool.shape[0] // 2] = 0
        return super().attend(layer, query, key, value, options)


class ForgetsTheScale(CpuAttention):
    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        return super().attend(layer, query * 1.5, key, value, options)


class WritesLate(CpuAttention):
    """Lets the last token of a step read what its slot held before."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        slot = int(self.slots[0][-1])
        pools = (self.storage.keys[layer], self.storage.values[layer])
        own = (key[:, -1].clone(), value[:, -1].clone())
        old_key, old_value = (
            torch.cat([new[:, :-1], pool[slot].clone().unsqueeze(1)], 1)
            for new, pool in zip((key, value), pools, strict=True)
        )
        out = super().attend(layer, query, old_key, old_value, options)
        for pool, new in zip(pools, own, strict=True):
            pool[slot] = new
        return out


class MixesUpSpans(CpuAttention):
    """Lets the second span read the first block of the first one."""

    def begin(self, step: StepArrays) -> None:
        first = step.spans[0]
        for span in step.spans[1:2]:
            span.blocks[0][0] = first.blocks[0][0]
        super().begin(step)


def in_dtype(model: str, dtype: torch.dtype) -> PreTrainedModel:
    loaded: Any = eager_model(model)
    converted: PreTrainedModel = loaded.to(dtype)
    return converted


def check(model: PreTrainedModel, attention: type[CpuAttention]) -> None:
    route = AttentionRoute()
    shapes = probe_layers(model, route, RecurrentRoute(model))
    case = make_case(VOCAB, BLOCK_SIZE)
    expected = whole_logits(model, case)
    model.set_attn_implementation(route.name)
    storage = allocate(
        shapes, num_blocks=case.blocks, block_size=BLOCK_SIZE, device=torch.device("cpu")
    )
    forward = RaggedForward(model, route, RecurrentRoute(model), attention(storage))
    check_ragged_step(model, forward, case, BLOCK_SIZE, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("broken", [LosesTheCache, ForgetsTheScale, MixesUpSpans])
def test_a_broken_attention_is_refused(
    broken: type[CpuAttention], dtype: torch.dtype, tmp_path: Path
) -> None:
    model = in_dtype(save_config(tmp_path, "llama"), dtype)
    with pytest.raises(UnsupportedModel, match="relative error"):
        check(model, broken)


class DependsOnOtherTokens:
    """Logits that depend on a row's token and position, and on the number of tokens in the step."""

    def __init__(self, loudness: float) -> None:
        self.loudness = loudness

    def run(self, step: StepArrays) -> Tensor:
        own = torch.from_numpy(step.token_ids + 1000 * step.positions)[step.logits_rows].float()
        return (own * (1.0 + self.loudness * len(step.token_ids))).unsqueeze(1)


def test_a_last_bit_that_depends_on_the_others_is_no_batch_invariant_mode() -> None:
    case = make_case(VOCAB, BLOCK_SIZE)
    quiet: Any = DependsOnOtherTokens(0.0)
    check_invariance(quiet, case, BLOCK_SIZE)
    loud: Any = DependsOnOtherTokens(1e-6)
    with pytest.raises(UnsupportedModel, match="depend on the other tokens of a step"):
        check_invariance(loud, case, BLOCK_SIZE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_real_attention_passes(dtype: torch.dtype, tmp_path: Path) -> None:
    check(in_dtype(save_config(tmp_path, "llama"), dtype), CpuAttention)


def test_differences_of_twice_a_rounding_error_of_the_embeddings_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a model that amplifies them beyond the fixed limit."""
    model = in_dtype(save_config(tmp_path, "llama"), torch.bfloat16)
    monkeypatch.setitem(self_check.TOLERANCE, torch.bfloat16, 1e-6)
    check(model, CpuAttention)
    for broken in (ForgetsTheScale, WritesLate):
        with pytest.raises(UnsupportedModel, match="relative error"):
            check(model, broken)


@pytest.mark.parametrize("settings", [{}, pytest.param({"quantize": "int8"}, marks=RUNS)])
def test_embeddings_of_a_served_model_are_nudged(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_config("llama").save_pretrained(tmp_path)
    monkeypatch.setitem(self_check.TOLERANCE, torch.bfloat16, 1e-6)
    load_runner(runner_config(str(tmp_path), dtype="bfloat16", **settings))


def test_the_case_has_a_second_chunk_an_extension_a_decode_and_a_shared_prefix() -> None:
    case = make_case(VOCAB, BLOCK_SIZE)
    spans = case.steps[1]
    assert [span.start for span in spans] == [5, 8, 3, 4]
    assert [len(span.tokens) for span in spans] == [8, 5, 1, 4]
    assert spans[3].block_tables[0][0] == spans[1].block_tables[0][0]
    assert case.sequences[3][:4] == case.sequences[1][:4]


def test_not_a_number_is_a_mismatch() -> None:
    error = worst_error(torch.tensor([[1.0, float("nan")]]), torch.tensor([[1.0, 2.0]]))
    assert not error <= 1e9


def save(folder: Path, class_name: str, **settings: object) -> str:
    getattr(transformers, class_name)(**settings).save_pretrained(folder)
    return str(folder)


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    model = save(tmp_path, "T5Config", num_layers=1)
    with pytest.raises(UnsupportedModel, match="encoder-decoder"):
        load_runner(runner_config(model))


def test_a_model_that_does_not_route_its_attention_is_refused(tmp_path: Path) -> None:
    small_config("cpmant").save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match="neither use transformers' attention"):
        load_runner(runner_config(str(tmp_path)))


def test_recurrent_layers_of_an_unknown_way_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RWKV is supported; here the list of known recurrences is empty."""
    small_config("rwkv").save_pretrained(tmp_path)
    monkeypatch.setattr("app.model.layers.own_recurrence._KINDS", {})
    with pytest.raises(UnsupportedModel, match="layer 0, a RwkvBlock"):
        load_runner(runner_config(str(tmp_path)))


def test_a_prefix_language_model_is_refused(tmp_path: Path) -> None:
    model = save(tmp_path, "PaliGemmaConfig")
    with pytest.raises(UnsupportedModel, match="reads its prompt in both directions"):
        load_runner(runner_config(model))


def test_sparse_attention_is_served_as_far_as_it_reads_everything(tmp_path: Path) -> None:
    small_config("deepseek_v32").save_pretrained(tmp_path)
    assert load_runner(runner_config(str(tmp_path))).max_model_len == 128
    config = small_config("deepseek_v32")
    config.index_topk = 40
    config.save_pretrained(tmp_path)
    assert load_runner(runner_config(str(tmp_path))).max_model_len == 40
    with pytest.raises(UnsupportedModel, match="limit is 40"):
        load_runner(runner_config(str(tmp_path), max_model_len=41))


@torch.inference_mode()
def test_products_in_float32_are_those_of_bfloat16() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(shape, generator=generator).bfloat16()
        for shape in ((3, 5, 64), (32, 64), (32,))
    )
    for added in (None, bias):
        exact = torch.nn.functional.linear(
            x.float(), weight.float(), None if added is None else added.float()
        )
        with _ProductsInFloat32():
            found = torch.nn.functional.linear(x, weight, added)
        assert torch.equal(found, exact.bfloat16())


@pytest.mark.parametrize("has_instructions", [True, False])
def test_reference_logits_do_not_depend_on_instructions_for_bfloat16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_instructions: bool
) -> None:
    monkeypatch.setattr(self_check, "cpu_multiplies_bfloat16", lambda: has_instructions)
    model: Any = eager_model(save_config(tmp_path, "llama"))
    case = make_case(VOCAB, BLOCK_SIZE)
    exact = whole_logits(model, case)
    assert worst_error(whole_logits(model.bfloat16(), case), exact) < 0.05


def test_the_reference_attends_in_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eager, seen = modeling_qwen2.eager_attention_forward, set()

    def spy(module: Any, query: Tensor, *args: Any, **more: Any) -> Any:
        seen.add(query.dtype)
        return eager(module, query, *args, **more)

    monkeypatch.setattr(modeling_qwen2, "eager_attention_forward", spy)
    model = in_dtype(save_config(tmp_path, "qwen2"), torch.bfloat16)
    whole_logits(model, make_case(VOCAB, BLOCK_SIZE))
    assert seen == {torch.float32}
    assert modeling_qwen2.eager_attention_forward is spy


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 16])
def test_a_case_has_blocks_for_its_tokens_whatever_the_size_of_a_block(
    size: int, states: bool
) -> None:
    case = make_case(96, size, 2, states=states)
    for spans in case.steps:
        lay_out(spans, size)
    blocks = {block for span in case.steps[-1] for table in span.block_tables for block in table}
    assert blocks == set(range(case.blocks))
