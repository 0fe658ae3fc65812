"""Compiles the attention kernels with the arguments of real launches; needs no GPU.

A test runs it in a process that does not interpret kernels. Prints one line of JSON for each
kernel: its name, the GPU's capability, and the shared memory: used, estimated, and the limit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from triton.compiler.compiler import make_backend
from triton.runtime.jit import create_function_from_signature

from app.core.step import Span
from app.model.cuda import attention as attention_module
from app.model.cuda import step_buffers
from app.model.cuda.attention import TritonAttention, heads_of
from app.model.cuda.tiles import Device, long_tile, short_tile
from app.model.inputs import lay_out
from app.model.kv_storage import CacheGroup, LayerShape, allocate_groups
from app.model.layers.attention import AttentionOptions
from app.model.layers.latent import LatentHeads

GPUS = {
    80: Device(108, 163 << 10, 8),
    89: Device(58, 99 << 10, 8),
    90: Device(132, 227 << 10, 9),
    100: Device(148, 227 << 10, 10),
}
BF16 = torch.bfloat16
SHAPES = {
    "Llama 3": LayerShape(2, 128, 128, 4, BF16),
    "Qwen 2.5 0.5B": LayerShape(2, 64, 64, 7, BF16),
    "Gemma 3": LayerShape(2, 256, 256, 2, BF16),
    "latent attention": LayerShape(2, 192, 128, 1, BF16),
    "very large": LayerShape(1, 512, 512, 8, BF16),
    "DeepSeek V3": LayerShape(1, 576, 512, 128, BF16, latent=True),
    "DeepSeek V2 Lite": LayerShape(1, 576, 512, 16, BF16, latent=True),
    "MiniCPM 3": LayerShape(1, 288, 256, 40, BF16, latent=True),
    "Llama 3 in 8 bits": LayerShape(2, 128, 128, 4, BF16, fp8=True),
    "DeepSeek V3 in 8 bits": LayerShape(1, 576, 512, 128, BF16, latent=True, fp8=True),
}


class Compiles:
    """Replaces a kernel: compiles what a launch needs, and does not run it."""

    def __init__(self, kernel: Any, capability: int, launched: Callable[..., None]) -> None:
        self._kernel = kernel
        self._target = GPUTarget("cuda", capability, 32)
        self._backend = make_backend(self._target)
        self._bind = create_function_from_signature(kernel.signature, kernel.params, self._backend)
        self._launched = launched

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, **constants: Any) -> None:
            bound, kinds, options = self._bind(*arguments, **constants)
            options, signature, constexprs, attributes = self._kernel._pack_args(
                self._backend, constants, bound, kinds, options
            )
            source = ASTSource(self._kernel, signature, constexprs, attributes)
            compiled = compile(source, target=self._target, options=options.__dict__)
            self._launched(self._kernel.__name__, constants, compiled.metadata.shared)

        return launch


def compile_all(
    name: str, capability: int, *, batch_invariant: bool, everything: bool, trees: bool, near: bool
) -> None:
    shape, gpu = replace(SHAPES[name], near=near), GPUS[capability]
    heads = heads_of(shape)
    tiles = [long_tile(heads, gpu, batch_invariant=batch_invariant), short_tile(heads, gpu)]

    def launched(kernel: str, constants: dict[str, Any], shared: int) -> None:
        rows = constants.get("TILE_ROWS")
        tile = next((tile for tile in tiles if tile.rows == rows), None)
        reckoned = 0 if tile is None else tile.shared_bytes(heads, gpu.capability)
        found = {"kernel": kernel, "shape": name, "gpu": capability, "rows": rows}
        found |= {"shared": shared, "reckoned": reckoned, "limit": gpu.shared_bytes}
        print(json.dumps(found))

    real: dict[tuple[Any, str], Any] = {}
    for module, names in (
        (attention_module, ("paged_attention", "merge_chunks", "store_keys_and_values")),
        (step_buffers, ("take_drawn",)),
    ):
        for kernel in names:
            real[module, kernel] = getattr(module, kernel)
            setattr(module, kernel, Compiles(real[module, kernel], capability, launched))
    group = CacheGroup(layers=(0,), num_blocks=1, window=900 if everything else None)
    attention = TritonAttention(
        allocate_groups({0: shape}, [group], block_size=16, device=torch.device("cpu")),
        {0: shape},
        max_model_len=4096,
        batch_invariant=batch_invariant,
        device=gpu,
    )
    spans = [Span([0], 2000, [[0] * 200]), Span([0] * 200, 0, [[0] * 200])]
    if trees:
        spans[0].tree = [-1]
    attention.begin(lay_out(spans, 16))
    step_buffers.put_drawn(attention.step, torch.zeros(1, dtype=torch.long))
    q_heads = shape.kv_heads * shape.group
    sinks = torch.zeros(q_heads, dtype=BF16) if everything else None
    options = AttentionOptions(
        0.1,
        group.window,
        2.0 if everything else None,
        sinks,
        chunked=everything,
        slopes=torch.zeros(q_heads) if everything else None,
    )
    if near:
        options = replace(options, near=torch.zeros(201, q_heads, 512))
    query = torch.zeros(q_heads, 201, shape.key_dim, dtype=BF16)
    key = torch.zeros(shape.kv_heads, 201, shape.key_dim, dtype=BF16)
    value = torch.zeros(shape.kv_heads, 201, shape.value_dim, dtype=BF16)
    if shape.latent:
        rank, rotary = shape.value_dim, shape.key_dim - shape.value_dim
        weight = torch.zeros(q_heads, 128, rank, dtype=BF16)
        options = replace(options, latent=LatentHeads(weight, weight.transpose(1, 2)))
        query = query[..., : 128 + rotary]
    attention.attend(0, query, key, value, options)
    for (module, kernel), original in real.items():
        setattr(module, kernel, original)


if __name__ == "__main__":
    for case in sys.argv[1:]:
        name, capability, *flags = case.split("/")
        compile_all(
            name,
            int(capability),
            batch_invariant="batch-invariant" in flags,
            everything="everything" in flags,
            trees="trees" in flags,
            near="near" in flags,
        )
