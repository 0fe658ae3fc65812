"""Batch-invariant products: on a GPU if there is one, else interpreted."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from app.model.cuda.kernels.product import Tiling, product, tiling
from tests.model.compiled_mode import in_compiled_mode
from tests.model.interpreter import DEVICE

pytestmark = pytest.mark.usefixtures("as_on_a_gpu")

SHAPES = {
    "one tile": (40, 72, Tiling(columns=64, depth=64, shares=1, stages=1)),
    "an odd depth": (24, 37, Tiling(columns=16, depth=16, shares=1, stages=1)),
    "a shared depth": (24, 72, Tiling(columns=32, depth=16, shares=2, stages=1)),
}
"""Columns and depth of the weight, and tiles small enough for the interpreter."""

TOLERANCES = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Relative to the largest value, for results that are rounded once."""

OTHER_ROWS = (2, 7, 33)


def made(shape: str, rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tiling]:
    """Random rows, weight and bias of a shape, and its tiles."""
    torch.manual_seed(0)
    width, depth, tiles = SHAPES[shape]
    sizes = ((rows, depth), (width, depth), (width,))
    x, weight, bias = (torch.randn(size).to(DEVICE, dtype) for size in sizes)
    return x, weight, bias, tiles


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("biased", [False, True], ids=["bare", "biased"])
def test_a_product_is_the_exact_one_rounded_once(
    shape: str, biased: bool, dtype: torch.dtype
) -> None:
    x, weight, bias, tiles = made(shape, 70, dtype)
    given = bias if biased else None
    found = product(x, weight, given, tiles)
    exact = functional.linear(x.double(), weight.double(), None if given is None else bias.double())
    assert found.dtype == dtype
    error = (found.double() - exact).abs().max() / exact.abs().max()
    assert error < TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_is_the_same_alone_and_at_its_place_among_others(
    shape: str, dtype: torch.dtype
) -> None:
    x, weight, bias, tiles = made(shape, 1 + max(OTHER_ROWS), dtype)
    alone = torch.cat([product(row[None].clone(), weight, bias, tiles) for row in x])
    for others in OTHER_ROWS:
        found = product(x[: others + 1], weight, bias, tiles)
        assert torch.equal(found, alone[: others + 1])


def test_what_is_shared_is_computed_a_bounded_number_of_rows_at_a_time() -> None:
    x, weight, bias, tiles = made("a shared depth", 11, torch.float32)
    whole = product(x, weight, bias, tiles)
    with mock.patch("app.model.cuda.kernels.product._ROWS_AT_ONCE", 4):
        assert torch.equal(product(x, weight, bias, tiles), whole)


def test_no_rows_are_no_launch() -> None:
    x, weight, _, tiles = made("one tile", 0, torch.float32)
    assert product(x, weight, None, tiles).shape == (0, 40)


@pytest.mark.parametrize(
    ("width", "depth", "expected"),
    [
        (28672, 4096, Tiling(columns=128, depth=64, shares=1, stages=4)),  # gate and up of 8B
        (128256, 4096, Tiling(columns=128, depth=64, shares=1, stages=4)),  # its output layer
        (6144, 4096, Tiling(columns=64, depth=64, shares=2, stages=4)),  # its QKV
        (4096, 14336, Tiling(columns=64, depth=64, shares=4, stages=4)),  # its down projection
        (896, 896, Tiling(columns=64, depth=64, shares=1, stages=4)),  # of a 0.5B model
    ],
)
def test_a_weights_shape_alone_decides_how_its_product_is_cut(
    width: int, depth: int, expected: Tiling
) -> None:
    assert tiling(torch.empty(width, depth, dtype=torch.bfloat16, device="meta")) == expected


COMPILE = """
import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from app.model.cuda.kernels import product

LEAST_SHARED = 99 << 10  # of compute capability 8.6

def build(kernel, types, constants, capability, **options):
    names = kernel.arg_names
    signature = {n: "constexpr" if n in constants else types[n] for n in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    aligned = [n for n in names if signature[n].startswith("*")]
    attributes = {(names.index(n),): [["tt.divisibility", 16]] for n in aligned}
    source = ASTSource(kernel, signature, values, attributes)
    return compile(source, target=GPUTarget("cuda", capability, 32), options=options)

for capability in (80, 90, 100):
    for name, dtype, width, depth in (
        ("*bf16", torch.bfloat16, 28672, 4096),
        ("*bf16", torch.bfloat16, 100, 872),
        ("*fp32", torch.float32, 4096, 4096),
    ):
        tiles = product.tiling(torch.empty(width, depth, dtype=dtype, device="meta"))
        types = dict.fromkeys(("x", "weight", "bias", "out"), name) | {"rows": "i32"}
        share = -(-depth // tiles.depth // tiles.shares) * tiles.depth
        sizes = dict(WIDTH=width, DEPTH=depth, SHARE=share, BIASED=True)
        sizes |= dict(TILE_ROWS=64, TILE_COLUMNS=tiles.columns, TILE_DEPTH=tiles.depth)
        sizes["PRECISION"] = "ieee" if dtype == torch.float32 else "tf32"
        built = build(product._product, types, sizes, capability, num_stages=tiles.stages)
        assert built.metadata.shared <= LEAST_SHARED, (capability, tiles, built.metadata.shared)
        if dtype == torch.bfloat16 and capability == 90:
            assert "wgmma" in built.asm["ptx"], "no tensor cores"
    types = dict(partial="*fp32", bias="*bf16", out="*bf16", rows="i32")
    sizes = dict(WIDTH=4096, SHARES=4, BLOCK=1024, BIASED=True)
    build(product._merge, types, sizes, capability)
"""


def test_the_kernels_compile_and_fit_into_shared_memory_with_no_gpu_here() -> None:
    in_compiled_mode("-c", COMPILE)
