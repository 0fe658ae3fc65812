"""Checkpoints in the formats of GPTQ and AWQ, read into weights of our own kinds: for the CPU.

Both hold a linear layer as ``qweight``, ``qzeros`` and ``scales`` by groups of inputs::

    weight = (code - zero) * scale

packed in words of 32 bits: GPTQ's codes along the inputs [K bits / 32, N], AWQ's along the outputs
[K, N bits / 32] in an order of its own; zeros of both along the outputs [groups, N bits / 32].
Codes are moved and never rounded; a zero times its scale is a minimum, rounded to 16 bits: off by
a hundredth of a step at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME
from transformers.utils.hub import cached_file, get_checkpoint_shard_files

from app.core.errors import UnsupportedModel
from app.core.progress import Progress, reporting
from app.model.checkpoints.progress_hooks import reporting_downloads
from app.model.cpu.kernels.quantized_panels import (
    BLOCK,
    INT4,
    INT4_MINIMA,
    INT8,
    QuantizedWeight,
    fits,
)

METHODS = frozenset({"gptq", "awq"})
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Output index of each code in a word."""
_CODES = ".qweight"


@dataclass(frozen=True, slots=True)
class Layout:
    """How a checkpoint is packed."""

    awq: bool
    bits: int
    group: int
    """Inputs that share a scale; -1: all of them."""
    zeros_less_one: bool
    """Zeros are stored less 1: GPTQ's first format."""


def layout_of(stored: Mapping[str, Any]) -> Layout:
    """The layout given in ``config.json``. Raises ``UnsupportedModel`` if it is unsupported."""
    method = stored["quant_method"]
    bits = stored.get("bits", stored.get("w_bit"))
    group = stored.get("group_size", stored.get("q_group_size"))
    awq = method == "awq"
    form = stored.get("version" if awq else "checkpoint_format") or ("gemm" if awq else "gptq")
    known = ("gemm",) if awq else ("gptq", "gptq_v2")
    problem = ""
    if bits != 4 and (awq or bits != 8):
        problem = f"{bits} bits"
    elif not isinstance(group, int) or (group != -1 and (group <= 0 or group % BLOCK)):
        problem = f"groups of {group} inputs"
    elif str(form).lower() not in known:
        problem = f"the format {form}"
    elif stored.get("dynamic"):
        problem = "a layout for each layer (dynamic)"
    if problem:
        raise UnsupportedModel(
            f"the weights are quantised by {method} with {problem}, which is not supported; on "
            "the CPU, awq (gemm) with 4 bits and gptq with 4 or 8 bits are, with a group size "
            f"that is a multiple of {BLOCK}"
        )
    return Layout(awq, bits, group, zeros_less_one=not awq and str(form).lower() == "gptq")


def read_weights(model: str, layout: Layout, progress: Progress) -> dict[str, QuantizedWeight]:
    """All quantised weights of a folder or a Hub name, by the names of their modules.

    Raises ``UnsupportedModel`` for an act-order that scatters groups, and for incomplete layers.
    """
    weights = {}
    with ExitStack() as opened:
        owners: dict[str, Any] = {}
        for path in _files(model, progress):
            file: Any = opened.enter_context(safe_open(path, framework="pt"))
            owners.update(dict.fromkeys(file.keys(), file))
        codes = sorted(name for name in owners if name.endswith(_CODES))
        for name in reporting(progress, "unpacking the weights", codes, unit="layers"):
            module = name.removesuffix(_CODES)
            parts = {
                part: owners[tensor].get_tensor(tensor)
                for part in ("qweight", "qzeros", "scales", "g_idx")
                if (tensor := f"{module}.{part}") in owners
            }
            weights[module] = _weight(module, parts, layout)
    if not weights:
        raise UnsupportedModel(f"{model} is marked as quantised but has no quantised weights")
    return weights


def _files(model: str, progress: Progress) -> list[str]:
    """The files that transformers reads, too: others may lie beside them."""
    optional: Any = {"_raise_exceptions_for_missing_entries": False}
    with reporting_downloads(progress) as downloads:
        whole = cached_file(model, SAFE_WEIGHTS_NAME, tqdm_class=downloads, **optional)
        if whole is not None:
            return [str(whole)]
        index = cached_file(model, SAFE_WEIGHTS_INDEX_NAME)
        shards, _ = get_checkpoint_shard_files(model, index, tqdm_class=downloads)
    return list(map(str, shards))


def _weight(module: str, parts: Mapping[str, Tensor], layout: Layout) -> QuantizedWeight:
    packed, zeros, scales = (parts.get(part) for part in ("qweight", "qzeros", "scales"))
    if packed is None or zeros is None or scales is None:
        raise UnsupportedModel(f"{module} lacks its qzeros or its scales")
    codes = _unpacked(packed, layout.bits, along=1 if layout.awq else 0, awq=layout.awq)
    offsets = _unpacked(zeros, layout.bits, along=1, awq=layout.awq)
    if layout.zeros_less_one:
        offsets = offsets + 1 & (1 << layout.bits) - 1
    inputs, groups = len(codes), len(scales)
    group = inputs if layout.group == -1 else layout.group
    if not fits(inputs) or groups != -(-inputs // group) or offsets.shape != scales.shape:
        raise UnsupportedModel(
            f"{module} has {groups} groups of {group} inputs, but {inputs} inputs"
        )
    order = parts.get("g_idx")
    if order is not None and not torch.equal(
        order.long(), torch.arange(inputs).div(group, rounding_mode="floor")
    ):
        raise UnsupportedModel(
            f"{module} uses act-order (desc_act), which is not supported; use a checkpoint "
            "without it"
        )
    middle = 1 << layout.bits - 1
    times = group // BLOCK
    spread = scales.half().t().repeat_interleave(times, dim=1)[:, : inputs // BLOCK].contiguous()
    minima = None
    if not bool((offsets == middle).all()):
        if layout.bits == 8:
            raise UnsupportedModel(
                f"{module} has 8-bit weights with zero points, which are not supported"
            )
        products = (offsets * scales.float()).half().t()
        minima = products.repeat_interleave(times, dim=1)[:, : inputs // BLOCK].contiguous()
    rows = codes.t()
    if layout.bits == 8:
        return QuantizedWeight(INT8, rows.contiguous(), spread)
    halves = rows.reshape(len(rows), -1, 2, BLOCK // 2)
    packed_rows = (halves[:, :, 0] | halves[:, :, 1] << 4).flatten(1)
    return QuantizedWeight(INT4 if minima is None else INT4_MINIMA, packed_rows, spread, minima)


def _unpacked(words: Tensor, bits: int, *, along: int, awq: bool) -> Tensor:
    """uint8 [rows, columns] of words of 32 bits, each of several codes along a dimension."""
    count = 32 // bits
    order = torch.tensor(_AWQ_ORDER if awq else range(count)).argsort()
    parts = [words >> bits * int(place) & (1 << bits) - 1 for place in order]
    return torch.stack(parts, dim=along + 1).to(torch.uint8).flatten(along, along + 1)
