"""The kernels between a layer's products against the code of transformers that they replace: on
a GPU if there is one, else interpreted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from app.model.cuda.kernels.elementwise import activate, add_norm, rms_norm, rotate_and_store
from app.model.layers.architecture import Norm
from tests.model.compiled_mode import in_compiled_mode
from tests.model.interpreter import DEVICE

pytestmark = pytest.mark.usefixtures("as_on_a_gpu")

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
WIDTH = 72
OTHER_ROWS = (2, 7, 33)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(DEVICE, dtype)


def assert_rounded_alike(found: Tensor, expected: Tensor) -> None:
    """Assert that numbers are equal up to the order of float32 sums. In half precision this order
    changes how a few numbers are rounded."""
    assert found.dtype == expected.dtype
    if found.dtype == torch.float32:
        torch.testing.assert_close(found, expected, rtol=2e-6, atol=1e-5)
    else:
        assert (found == expected).float().mean() > 0.99
        last_place = torch.finfo(found.dtype).eps * expected.abs().max()
        assert (found - expected).abs().max() <= 4 * last_place


def a_norm(
    kind: type, dtype: torch.dtype, width: int = WIDTH
) -> tuple[Norm, Callable[..., Tensor]]:
    """A norm for our kernels, and the same norm as a module of transformers."""
    module = kind(width, eps=1e-5).to(DEVICE, dtype)
    module.weight.copy_(random(width, dtype=dtype))
    return Norm(module.weight, 1e-5, shifted=kind is Gemma3RMSNorm), module


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [LlamaRMSNorm, Gemma3RMSNorm])
def test_norms_round_where_those_of_transformers_do(kind: type, dtype: torch.dtype) -> None:
    hidden, added = random(5, WIDTH, dtype=dtype), random(5, WIDTH, dtype=dtype)
    ours, theirs = a_norm(kind, dtype)
    post, their_post = a_norm(kind, dtype)
    assert_rounded_alike(rms_norm(hidden, ours), theirs(hidden))
    total, normed = add_norm(hidden, added, None, ours)
    assert torch.equal(total, hidden + added)
    assert_rounded_alike(normed, theirs(total))
    total, normed = add_norm(hidden, added, post, ours)
    assert_rounded_alike(total, hidden + their_post(added))
    assert_rounded_alike(normed, theirs(total))


HEADS = {"grouped": (6, 2, 16), "odd": (3, 1, 20), "many": (70, 5, 6)}
"""Number of query heads, of key heads, and of dimensions."""

HEAD_NORMS = {"bare": None, "qwen": LlamaRMSNorm, "gemma": Gemma3RMSNorm}


@pytest.mark.parametrize(
    ("shape", "kind", "dtype"),
    [
        *(("grouped", kind, dtype) for kind in HEAD_NORMS for dtype in DTYPES),
        *((shape, "qwen", torch.float32) for shape in ("odd", "many")),
    ],
    ids=str,
)
def test_heads_are_normed_turned_and_stored(shape: str, kind: str, dtype: torch.dtype) -> None:
    query_heads, kv_heads, dim = HEADS[shape]
    tokens, slots = 5, torch.tensor([7, 3, 9, 0, 4], device=DEVICE)
    heads = random(tokens, (query_heads + 2 * kv_heads) * dim, dtype=dtype)
    cos, sin = random(tokens, dim, dtype=dtype), random(tokens, dim, dtype=dtype)
    keys, values = (random(11, kv_heads, dim, dtype=dtype) for _ in range(2))
    expected_keys, expected_values = keys.clone(), values.clone()

    query, key, value = (
        part.view(tokens, -1, dim)
        for part in heads.split_with_sizes(
            [query_heads * dim, kv_heads * dim, kv_heads * dim], dim=1
        )
    )
    norms = None
    if (norm := HEAD_NORMS[kind]) is not None:
        (of_query, their_query), (of_key, their_key) = (a_norm(norm, dtype, dim) for _ in range(2))
        norms = (of_query, of_key)
        query, key = their_query(query), their_key(key)
    query, key = apply_rotary_pos_emb(query, key, cos, sin)
    expected_keys[slots], expected_values[slots] = key, value

    found = rotate_and_store(heads, cos, sin, slots, (keys, values, keys, values), norms)
    assert_rounded_alike(found, query)
    assert_rounded_alike(keys, expected_keys)
    assert torch.equal(values, expected_values)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_activations_are_those_of_torch(dtype: torch.dtype) -> None:
    gate_up = 4 * random(3, 2 * 1030, dtype=dtype)
    gate_up[0, :4] = torch.tensor([0.0, -90.0, 90.0, -1e4], device=DEVICE)
    gate, up = gate_up.chunk(2, dim=1)
    assert_rounded_alike(activate(gate_up, gelu=False), functional.silu(gate) * up)
    gelu = functional.gelu(gate, approximate="tanh")
    found = activate(gate_up, gelu=True)
    # torch computes 1 + tanh(x), and loses digits where tanh(x) is near -1.
    rtol = max(2e-6, 2 * torch.finfo(dtype).eps)
    torch.testing.assert_close(found, gelu * up, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_token_is_the_same_alone_and_at_its_place_among_others(dtype: torch.dtype) -> None:
    norm, _ = a_norm(LlamaRMSNorm, dtype)
    head_norm, _ = a_norm(LlamaRMSNorm, dtype, 8)
    rows, turns = random(1 + max(OTHER_ROWS), WIDTH, dtype=dtype), random(2, 34, 8, dtype=dtype)

    def results(first: int, last: int) -> list[Tensor]:
        """Results of every kernel for these rows."""
        x, count = rows[first:last].clone(), last - first
        keys, values = (torch.zeros(count, 2, 8, dtype=dtype, device=DEVICE) for _ in range(2))
        cos, sin = turns[:, first:last].clone()
        slots = torch.arange(count, device=DEVICE)
        query = rotate_and_store(
            x, cos, sin, slots, (keys, values, keys, values), (head_norm, head_norm)
        )
        return [*add_norm(x, x, norm, norm), activate(x, gelu=False), query, keys, values]

    one_by_one = [results(i, i + 1) for i in range(len(rows))]
    alone = [torch.cat(parts) for parts in zip(*one_by_one, strict=True)]
    for others in OTHER_ROWS:
        for found, expected in zip(results(0, others + 1), alone, strict=True):
            assert torch.equal(found, expected[: others + 1])


COMPILE = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from app.model.cuda.kernels import elementwise as kernels

def build(kernel, constants, kept="*bf16", gpus=(80, 90, 100), **options):
    names = kernel.arg_names
    signature = dict.fromkeys(names, "*bf16") | dict.fromkeys(constants, "constexpr")
    signature |= {n: "fp32" for n in names if n.endswith("eps")}
    if "slots" in names:
        signature |= {"slots": "*i64", "keys": kept, "values": kept}
        signature |= {"key_scales": "*fp32", "value_scales": "*fp32"}
    values = {(names.index(name),): value for name, value in constants.items()}
    for capability in gpus:
        target = GPUTarget("cuda", capability, 32)
        compile(ASTSource(kernel, signature, values), target=target, options=options)

flags = dict(ADDS=True, NORMS_ADDED=True, SHIFTED=True)
build(kernels._add_norm, dict(WIDTH=5376, PAD=8192, **flags), num_warps=16)
sizes = dict(QUERY_HEADS=32, KV_HEADS=8, HALF=40, HALF_PAD=64, TILE=16)
sizes |= dict(NORMS=True, SHIFTED=False)
build(kernels._rotate_and_store, dict(SCALED=False, **sizes))
build(kernels._rotate_and_store, dict(SCALED=True, **sizes), kept="*fp8e4nv", gpus=(89, 90, 100))
build(kernels._activate, dict(WIDTH=14336, BLOCK=1024, GELU=True))
"""


def test_the_kernels_compile_with_no_gpu_here() -> None:
    in_compiled_mode("-c", COMPILE)
