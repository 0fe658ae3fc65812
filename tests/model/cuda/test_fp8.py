"""Keys and values in 8 bits, against torch's own rounding and the CPU attention."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from app.core.errors import UnsupportedModel
from app.model import self_check
from app.model.cpu.attention import CpuAttention
from app.model.cuda.attention import TritonAttention
from app.model.cuda.kernels.elementwise import rotate_and_store
from app.model.cuda.tiles import Device
from app.model.device import require_fp8
from app.model.kv_storage import KvStorage, LayerShape, allocate
from app.model.layers.latent import LatentHeads
from app.model.self_check import check_rounded_cache, make_case, whole_logits
from tests.model.cuda.test_attention import (
    BATCH,
    BLOCK,
    CPU,
    FAR,
    OPTIONS,
    SHAPES,
    latent_heads,
    make_step,
    make_storage,
    new_heads,
    on_device,
    there,
)
from tests.model.fused_models import fused, saved
from tests.model.interpreter import DEVICE
from tests.model.tiny import (
    VOCAB,
    eager_logits,
    mean_error,
    random_texts,
    run_in_random_batches,
    varied_model,
)

pytestmark = pytest.mark.usefixtures("as_on_a_gpu")
LARGE = Device(multiprocessors=1, shared_bytes=227 << 10, capability=9)


def rounded(heads: Tensor) -> tuple[Tensor, Tensor]:
    """E4M3 numbers and their scales, by which the largest number of a head becomes 448."""
    scales = heads.float().abs().amax(-1) / 448
    return (heads.float() / scales[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn), scales


def widened(heads: Tensor) -> Tensor:
    """Heads after rounding to 8 bits and back."""
    kept, scales = rounded(heads)
    return (kept.float() * scales[..., None]).to(heads.dtype)


def in_8_bits(storage: KvStorage, shape: LayerShape, blocks: int) -> KvStorage:
    """A copy with keys and values in 8 bits; those of ``storage`` are rounded accordingly."""
    found = allocate({0: replace(shape, fp8=True)}, num_blocks=blocks, block_size=BLOCK, device=CPU)
    for kept, scales, whole in (
        (found.keys, found.key_scales, storage.keys),
        *(() if shape.latent else ((found.values, found.value_scales, storage.values),)),
    ):
        numbers, of_heads = rounded(whole[0])
        kept[0].copy_(numbers)
        scales[0].copy_(of_heads)
        whole[0].copy_(widened(whole[0]))
    copy = on_device(found)
    key_scales = {0: found.key_scales[0].to(DEVICE)}
    value_scales = key_scales if shape.latent else {0: found.value_scales[0].to(DEVICE)}
    return replace(copy, groups=storage.groups, key_scales=key_scales, value_scales=value_scales)


@pytest.mark.parametrize(
    ("shape", "option", "dtype"),
    [
        *(("grouped heads", option, torch.float32) for option in ("plain", "everything")),
        ("grouped heads", "plain", torch.float16),
        ("grouped heads", "plain", torch.bfloat16),
        ("odd dimensions", "plain", torch.float32),
        ("latents", "plain", torch.float32),
        ("latents", "sinks", torch.bfloat16),
    ],
)
def test_attention_over_8_bits_is_that_over_what_they_stand_for(
    shape: str, option: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    layer, options = replace(SHAPES[shape], dtype=dtype), OPTIONS[option]
    step = make_step([*BATCH, *FAR], random.Random(0), options.window)
    blocks = 1 + sum(len(span.blocks[0]) for span in step.spans)
    storage = make_storage({0: layer}, blocks, options.window)
    copy = in_8_bits(storage, layer, blocks)
    query, key, value = new_heads(layer, len(step.token_ids))
    key *= 30  # some numbers exceed the range of E4M3
    if layer.latent:
        heads = latent_heads(layer)
        heads = LatentHeads(heads.keys.to(dtype), heads.values.to(dtype))
        options = replace(options, latent=heads)
        query = query[..., : 5 + layer.key_dim - layer.value_dim]
    query = query / 30

    device = TritonAttention(
        copy, {0: replace(layer, fp8=True)}, max_model_len=2048, device=LARGE, partial_tokens=1
    )
    device.begin(step)
    found = device.attend(0, query.to(DEVICE), key.to(DEVICE), value.to(DEVICE), there(options))

    slots = torch.from_numpy(step.slots[0])
    read = restored(copy.keys[0], copy.key_scales[0])[slots].transpose(0, 1).to(dtype)
    assert_rounded_like(read, widened(key))
    if layer.latent:
        of_value = read[..., : layer.value_dim]
    else:
        of_value = restored(copy.values[0], copy.value_scales[0])[slots].transpose(0, 1).to(dtype)
        assert_rounded_like(of_value, widened(value))
    cpu = CpuAttention(storage)
    cpu.begin(step)
    expected = cpu.attend(0, query, read, of_value, options)
    close = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    scale = float(expected.float().abs().max())
    torch.testing.assert_close(found.cpu(), expected, atol=close * scale, rtol=close)


def restored(kept: Tensor, scales: Tensor) -> Tensor:
    return (kept.float() * scales[..., None]).cpu()


def assert_rounded_like(found: Tensor, expected: Tensor) -> None:
    """Assert equality; a few numbers may be rounded to the next one of E4M3, an eighth away."""
    off = (found.float() - expected.float()).abs() > 0.01 * expected.float().abs()
    assert float(off.float().mean()) < 0.02
    torch.testing.assert_close(found.float(), expected.float(), rtol=0.13, atol=1e-30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_turned_heads_are_kept_in_8_bits(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    query_heads, kv_heads, dim, tokens = 6, 2, 16, 5
    shape = LayerShape(kv_heads, dim, dim, 3, dtype)
    heads = torch.randn(tokens, (query_heads + 2 * kv_heads) * dim).to(dtype).to(DEVICE)
    heads[2] = 0
    cos, sin = (torch.randn(tokens, dim).to(dtype).to(DEVICE) for _ in range(2))
    slots = torch.tensor([7, 3, 9, 0, 4], device=DEVICE)
    plain = allocate({0: shape}, num_blocks=1, block_size=BLOCK, device=DEVICE)
    kept = allocate({0: replace(shape, fp8=True)}, num_blocks=1, block_size=BLOCK, device=DEVICE)
    parts = (plain.keys[0], plain.values[0])
    expected = rotate_and_store(heads, cos, sin, slots, (*parts, *parts), None)
    scales = (kept.key_scales[0], kept.value_scales[0])
    found = rotate_and_store(heads, cos, sin, slots, (kept.keys[0], kept.values[0], *scales), None)
    assert torch.equal(found, expected)
    for whole, numbers, of_heads in zip(parts, (kept.keys[0], kept.values[0]), scales, strict=True):
        assert not numbers[slots[2]].float().any()
        written = slots[[0, 1, 3, 4]]
        wanted, wanted_scales = rounded(whole[written])
        torch.testing.assert_close(of_heads[written], wanted_scales)
        assert_rounded_like(numbers[written], wanted)


def test_8_bits_take_half_the_memory_and_their_scales() -> None:
    shape = LayerShape(8, 128, 128, 4, torch.bfloat16)
    assert shape.token_bytes == 8 * 256 * 2
    assert replace(shape, fp8=True).token_bytes == 8 * (256 + 2 * 4)
    latent = LayerShape(1, 576, 512, 128, torch.bfloat16, latent=True, fp8=True)
    assert latent.token_bytes == 576 + 4
    storage = allocate({0: replace(shape, fp8=True)}, num_blocks=3, block_size=BLOCK, device=CPU)
    assert storage.nbytes == 4 * BLOCK * replace(shape, fp8=True).token_bytes


@pytest.mark.parametrize("kind", ["qwen3", "gemma3"])
def test_a_model_over_8_bits_says_nearly_what_it_says_over_16(kind: str, tmp_path: Path) -> None:
    dice = random.Random(kind)
    texts = random_texts(dice, (11, 2, 5))
    folder = saved(tmp_path, kind)
    expected = eager_logits(varied_model(folder, torch.float32), texts)
    _, forward, attention = fused(folder, torch.float32, device_attention=True, fp8=True)
    found = run_in_random_batches(forward, len(attention.storage.groups), texts, dice)
    assert 1e-4 < mean_error(found, expected) < 0.05


def test_self_check_measures_what_8_bits_change_and_refuses_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path, "qwen3")
    _, forward, _ = fused(folder, torch.float32, device_attention=True, fp8=True)
    plain = varied_model(folder, torch.float32)
    case = make_case(VOCAB, 4)
    expected = whole_logits(plain, case).to(DEVICE)
    check_rounded_cache(forward, case, 4, expected)
    monkeypatch.setattr(self_check, "_ROUNDED_CACHE", 1e-5)
    with pytest.raises(UnsupportedModel, match=r"an fp8 KV cache.*KV_CACHE_DTYPE"):
        check_rounded_cache(forward, case, 4, expected)


def test_8_bits_are_refused_where_they_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedModel, match="needs CUDA; set LEAPJSON_KV_CACHE_DTYPE to auto"):
        require_fp8(CPU)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    with pytest.raises(UnsupportedModel, match=r"A100 has no hardware for it.*8\.0.*needs 8\.9"):
        require_fp8(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 9))
    require_fp8(torch.device("cuda"))
