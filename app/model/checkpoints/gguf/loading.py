"""A model from a GGUF file, with its quantised weights as the file has them.

Names of tensors are those of the package ``gguf``, which llama.cpp's converter uses. Changes that
the converter makes to tensors are undone here: rows of heads in another order, norms with 1 added.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, get_tensor_name_map
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from app.core.errors import UnsupportedModel
from app.core.gguf_file import FLOATS, GgufFile
from app.core.progress import Progress, reporting
from app.model.checkpoints.assembly import assemble, empty_model, holds_stored
from app.model.checkpoints.gguf.blocks import READERS, floats, read, rounded
from app.model.checkpoints.gguf.configuration import layers_left_out
from app.model.cpu.kernels.quantized_panels import INT8, QuantizedWeight, dequantize, join, quantize

_log = logging.getLogger(__name__)

_ROPE_FACTORS = "rope_freqs.weight"
"""Divisors of the RoPE frequencies; Llama 3 and later."""
_CONFIGURED = frozenset({"rope_factors_long.weight", "rope_factors_short.weight", _ROPE_FACTORS})
_DTYPES = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}


def load_gguf(
    file: GgufFile,
    config: PretrainedConfig,
    dtype: torch.dtype,
    *,
    as_stored: bool,
    progress: Progress,
) -> PreTrainedModel:
    """Load a model on the CPU; unless ``as_stored``, all its weights are of ``dtype``.

    ``config`` is ``configuration(file)``; it is changed where a quantised embedding is the output
    layer too, which transformers cannot tie. Types that panels do not support are rounded to 8
    bits, and the log has the error.

    Raises ``UnsupportedModel`` for tensors of unknown names or types, and missing ones.
    """
    model = empty_model(config, dtype)
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    names = sources(list(shapes), file.architecture, config.num_hidden_layers, file.tensors)
    _require_all_used(file, {name for each in names.values() for name in each}, config)
    reader = _Reader(file, config)
    plain: dict[str, Tensor] = {}
    stored: dict[str, QuantizedWeight] = {}
    for name, tensors in reporting(
        progress, "reading the GGUF file", names.items(), unit="weights"
    ):
        module = model.get_submodule(name.rpartition(".")[0])
        if as_stored and holds_stored(module, name) and reader.is_quantized(tensors):
            stored[name.removesuffix(".weight")] = reader.stored(tensors, module)
        else:
            plain[name] = _shaped(reader.plain(tensors, module), module, name, shapes[name])
    if config.tie_word_embeddings:  # the output layer holds the embedding's weight if quantised
        names_by_id = {id(module): name for name, module in model.named_modules()}
        if (embedding := names_by_id[id(model.get_input_embeddings())]) in stored:
            config.tie_word_embeddings = False
            stored[names_by_id[id(model.get_output_embeddings())]] = stored[embedding]
    del model
    reader.log()
    made = assemble(config, stored, dtype, plain=plain)
    if _ROPE_FACTORS in file.tensors:
        # Llama 3's scaled frequencies, which llama.cpp divides by a tensor of factors.
        factors = torch.from_numpy(file.tensors[_ROPE_FACTORS].rows()[0].view("<f4"))
        rotary = made.model.rotary_emb
        if rotary.inv_freq.shape != factors.shape:
            raise UnsupportedModel(
                f"{_ROPE_FACTORS} has {len(factors)} factors for {len(rotary.inv_freq)} frequencies"
            )
        with torch.no_grad():
            rotary.inv_freq.div_(factors)
            rotary.original_inv_freq = rotary.inv_freq.clone()
    return made


class _Reader:
    """Reads tensors in the layout of transformers' models, and counts the rounded ones."""

    def __init__(self, file: GgufFile, config: PretrainedConfig) -> None:
        self._file = file
        self._config = config
        self._rounded: Counter[str] = Counter()
        """Number of rounded weights, by the names of ggml's types."""
        self._most = 0.0
        """The largest relative error of a rounded one."""

    def is_quantized(self, names: list[str]) -> bool:
        return all(self._file.tensors[name].kind not in FLOATS for name in names)

    def stored(self, names: list[str], module: nn.Module) -> QuantizedWeight:
        """The weight in a format of panels; rows of several tensors are joined."""
        parts = [self._stored(name) for name in names]
        if len({part.kind for part in parts}) > 1:
            parts = [
                self._round(name, dequantize(part)) for name, part in zip(names, parts, strict=True)
            ]
        weight = join(parts)
        return (
            weight if len(names) == 1 else weight.reordered(_side_by_side(weight.outputs, module))
        )

    def plain(self, names: list[str], module: nn.Module) -> Tensor:
        """[rows, ...] in float32, or in the file's own type if its values are not changed."""
        parts = []
        for name in names:
            value, undo = self._floats(name), self._undoing(name)
            value = value if undo.rows is None else value[undo.rows]
            value = value if undo.columns is None else value[:, undo.columns]
            parts.append(value if undo.value is None else undo.value(value))
        if len(parts) == 1:
            return parts[0]
        rows = torch.cat([part.flatten(0, 1) for part in parts])
        return rows[_side_by_side(len(rows), module)]

    def log(self) -> None:
        if self._rounded:
            _log.warning(
                "weights rounded to 8 bits (8.5 bits a weight): %s, with an error of at most "
                "%.2f%% of a weight; %s are kept unchanged",
                ", ".join(f"{count} of {kind}" for kind, count in sorted(self._rounded.items())),
                100 * self._most,
                ", ".join(kind.name for kind in READERS),
            )

    def _stored(self, name: str) -> QuantizedWeight:
        tensor, undo = self._file.tensors[name], self._undoing(name)
        rows = tensor.rows()
        weight = read(rows, tensor.kind)
        if weight is None:
            weight, error = self._unpacked(name, lambda: rounded(rows, tensor.kind))
            self._note(name, error)
        if undo.rows is not None:
            weight = weight.reordered(undo.rows)
        if undo.columns is not None:
            moved = weight.with_inputs(undo.columns)
            weight = moved or self._round(name, dequantize(weight)[:, undo.columns])
        return weight

    def _round(self, name: str, values: Tensor) -> QuantizedWeight:
        weight = quantize(values, INT8)
        self._note(name, float((dequantize(weight) - values).norm() / values.norm()))
        return weight

    def _note(self, name: str, error: float) -> None:
        self._rounded[GGMLQuantizationType(self._file.tensors[name].kind).name] += 1
        self._most = max(self._most, error)

    def _floats(self, name: str) -> Tensor:
        tensor = self._file.tensors[name]
        rows = tensor.rows()
        if tensor.kind in FLOATS:
            return torch.from_numpy(rows).view(_DTYPES[tensor.kind]).view(tensor.shape)
        values: Tensor = self._unpacked(name, lambda: floats(rows, tensor.kind))
        return values.view(tensor.shape)

    def _unpacked(self, name: str, unpack: Callable[[], Any]) -> Any:
        try:
            return unpack()
        except NotImplementedError as error:
            kind = GGMLQuantizationType(self._file.tensors[name].kind).name
            raise UnsupportedModel(
                f"{self._file.path} stores {name} as {kind}, which the package gguf cannot unpack"
            ) from error

    def _undoing(self, name: str) -> Undoing:
        rows = self._file.tensors[name].shape[0]
        return undoing(name, rows, self._file.architecture, self._config)


def _side_by_side(rows: int, experts: Any) -> Tensor:
    """Order of rows from all experts' gates, then all up projections, to one expert's together."""
    places = torch.arange(rows).view(2, experts.num_experts, -1)
    return places.permute((1, 0, 2) if experts.is_concatenated else (1, 2, 0)).flatten()


def _shaped(value: Tensor, module: nn.Module, name: str, shape: torch.Size) -> Tensor:
    """``value`` in the parameter's shape: axes of size 1, separate experts, or outputs last."""
    transposed = type(module) is Conv1D or getattr(module, "is_transposed", False)
    if transposed and len(shape) > 1 and not name.endswith("_bias"):
        value = value.reshape(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
    if value.numel() != shape.numel():
        raise UnsupportedModel(f"{name} has shape {tuple(value.shape)}, not {tuple(shape)}")
    return value.reshape(shape)


def _require_all_used(file: GgufFile, used: set[str], config: PretrainedConfig) -> None:
    """Raises ``UnsupportedModel`` for a tensor that belongs to no parameter."""
    more = layers_left_out(file)
    left = [f"blk.{config.num_hidden_layers + number}." for number in range(more)]
    for name in file.tensors.keys() - used - _CONFIGURED:
        if not name.startswith(tuple(left)):
            raise UnsupportedModel(
                f"{file.path} has an unknown tensor {name} for the architecture {file.architecture}"
            )
    if more:
        _log.info("%d layers for multi-token prediction are not loaded", more)


_RESPELLED = (
    (r"\.dt_bias$", ".dt_proj.bias"),
    (r"\.sinks$", ".sinks.weight"),
    (r"\.e_score_correction_bias$", ".e_score_correction.bias"),
    (r"\.router\.weight$", ".router.layer.weight"),
    (r"^transformer\.(?=word_embeddings_layernorm|h\.\d+\.post_attention)", ""),
)
"""Other names to try for parameters whose own names the package does not know."""
_EXPERTS = re.compile(r"\.(\d+)\..*experts\.(gate_up|down)_proj(_bias)?$")
_ROTATED = frozenset({"llama", "granite", "granitemoe"})
"""Architectures with rows of heads ordered for a rotation of neighbours, not of halves."""
_WITH_ONE = frozenset({"gemma", "gemma2", "gemma3", "nemotron", "qwen35", "qwen35moe"})
"""Architectures whose norm weights have 1 added."""


def sources(
    parameters: list[str], architecture: str, layers: int, there: Mapping[str, object]
) -> dict[str, list[str]]:
    """Names of the tensors of each parameter; parameters without tensors ``there`` are left out.

    One tensor for most; for experts the gates', then the up projections'.
    """
    (kind,) = [kind for kind, name in MODEL_ARCH_NAMES.items() if name == architecture]
    known = get_tensor_name_map(kind, layers)
    found = {}
    for parameter in parameters:
        if experts := _EXPERTS.search(parameter):
            number, part, bias = experts.groups()
            leaf = "bias" if bias else "weight"
            both = [f"blk.{number}.ffn_{each}_exps.{leaf}" for each in ("gate", "up")]
            names = both if part == "gate_up" else [f"blk.{number}.ffn_down_exps.{leaf}"]
            fused = f"blk.{number}.ffn_gate_up_exps.{leaf}"
            names = [fused] if part == "gate_up" and fused in there else names
        else:
            spellings = [parameter]
            for pattern, other in _RESPELLED:
                spellings += [re.sub(pattern, other, parameter)]
            mapped = (known.get_name(each, (".weight", ".bias")) for each in spellings)
            names = [name for name in mapped if name is not None and name in there][:1]
        if all(name in there for name in names) and names:
            found[parameter] = names
    return found


@dataclass(frozen=True, slots=True)
class Undoing:
    """Steps from a tensor to its parameter; None: no change."""

    rows: Tensor | None = None
    """Indices of the tensor's rows, in the parameter's order."""
    columns: Tensor | None = None
    """Indices of its columns (inputs), in the parameter's order."""
    value: Callable[[Tensor], Tensor] | None = None
    """Function of the values, which are floats."""


def undoing(tensor: str, rows: int, architecture: str, config: Any) -> Undoing:
    """Steps from ``tensor``, which has ``rows`` rows, to its parameter."""
    part = tensor.split(".", 2)[-1] if tensor.startswith("blk.") else tensor
    name = part.rpartition(".")[0] or part
    order = torch.arange(rows)
    if architecture in _ROTATED and name in ("attn_q", "attn_k"):
        return Undoing(order.view(-1, config.head_dim // 2, 2).transpose(1, 2).flatten())
    if architecture == "bloom" and name == "attn_qkv":
        return Undoing(order.view(3, config.n_head, -1).transpose(0, 1).flatten())
    if architecture == "falcon" and name == "attn_qkv":  # a group's queries, key and value
        heads, groups = config.num_attention_heads, config.num_kv_heads
        dim = len(order) // (heads + 2 * groups)
        parts = torch.split(order, [heads * dim, groups * dim, groups * dim])
        return Undoing(torch.cat([each.view(groups, -1, dim) for each in parts], 1).flatten())
    if architecture in ("qwen35", "qwen35moe") and (found := _recurrent(name, order, config)):
        return found
    if name == "ssm_a":
        return Undoing(value=_log_of_negative)
    if architecture in _WITH_ONE and part.endswith("norm.weight") and name != "ssm_norm":
        return Undoing(value=lambda value: value.float() - 1)
    return Undoing()


def _log_of_negative(value: Tensor) -> Tensor:
    return torch.log(-value.float())


def _recurrent(name: str, order: Tensor, config: Any) -> Undoing | None:
    """Qwen 3.5's value heads, which are stored by their number within a key head, then by key."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    before = 2 * keys * config.linear_key_head_dim if name in ("attn_qkv", "ssm_conv1d") else 0

    def by_key(places: Tensor) -> Tensor:
        return places.view(values // keys, keys, -1).transpose(0, 1).flatten()

    if name == "ssm_out":
        return Undoing(columns=by_key(torch.arange(values * config.linear_value_head_dim)))
    if name in ("attn_gate", "attn_qkv", "ssm_alpha", "ssm_beta", "ssm_conv1d", "ssm_dt", "ssm_a"):
        rows = torch.cat([order[:before], by_key(order[before:])])
        return Undoing(rows, value=_log_of_negative if name == "ssm_a" else None)
    return None
