"""A model from a GGUF file, with its quantised weights as the file has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from app.core.errors import UnsupportedModel
from app.core.progress import SILENCE, Progress, telling
from app.model.checkpoints.assembly import assemble, empty_model
from app.model.checkpoints.gguf.blocks import NAMES, READERS
from app.model.checkpoints.gguf.file import FLOATS, GgufFile
from app.model.checkpoints.gguf.names import ROPE_FACTORS, Place, place_of
from app.model.cpu.kernels.quantized_panels import QuantizedWeight, map_rows
from app.model.cpu.kernels.quantized_panels import dequantize as widened

_EMBEDDING, _OUTPUT = "model.embed_tokens", "lm_head"


def load_gguf(
    file: GgufFile,
    config: PretrainedConfig,
    dtype: torch.dtype,
    *,
    dequantize: bool,
    progress: Progress = SILENCE,
) -> PreTrainedModel:
    """On the CPU; with ``dequantize`` its weights become those of ``dtype``.

    ``config`` is ``configuration(file)``; it is changed where a quantised embedding is the output
    layer too, which transformers cannot tie.

    Raises ``UnsupportedModel`` for tensors of unknown names or types, and missing ones.
    """
    plain: dict[str, Tensor] = {}
    stored: dict[str, QuantizedWeight] = {}
    tensors = file.tensors.items()
    for name, tensor in telling(progress, "reading the GGUF file", tensors, unit="tensors"):
        if name == ROPE_FACTORS:
            continue
        place = place_of(name, file.architecture)
        if place is None:
            raise UnsupportedModel(
                f"{file.path} has a tensor {name}, which {file.architecture} does not have here"
            )
        order = _rows_in_order(place, config)
        if tensor.ggml_type in FLOATS:
            value = tensor[...]
            value = value.float() - 1 if place.less_one else value
            plain[place.parameter] = order(value)
        elif tensor.ggml_type in READERS and place.parameter.endswith(".weight"):
            weight = READERS[tensor.ggml_type](tensor[...])
            weight = map_rows(order, weight)
            if dequantize:
                plain[place.parameter] = widened(weight, dtype)
            else:
                stored[place.parameter.removesuffix(".weight")] = weight
        else:
            raise UnsupportedModel(
                f"{file.path} has {name} in a type that is not served (number {tensor.ggml_type} "
                f"of ggml's); {NAMES}, F32, F16 and BF16 are"
            )
    if config.tie_word_embeddings and _EMBEDDING in stored:
        config.tie_word_embeddings = False
        stored[_OUTPUT] = stored[_EMBEDDING]
    _check_names(file, config, dtype, [*plain, *(f"{name}.weight" for name in stored)])
    model = assemble(config, stored, dtype, plain=plain)
    if ROPE_FACTORS in file.tensors:
        _scale_positions(model, file.tensors[ROPE_FACTORS][...].float())
    return model


def _rows_in_order(place: Place, config: PretrainedConfig) -> Callable[[Tensor], Tensor]:
    """From llama.cpp's order of rows to transformers': see ``Place.rotated``."""
    if not place.rotated:
        return lambda rows: rows
    half = config.head_dim // 2

    def order(rows: Tensor) -> Tensor:
        return rows.view(-1, half, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)

    return order


def _check_names(
    file: GgufFile, config: PretrainedConfig, dtype: torch.dtype, names: list[str]
) -> None:
    """Whether the model has a place for all; that no weight is missing is found in loading."""
    known = empty_model(config, dtype).state_dict()
    for name in names:
        if name not in known:
            raise UnsupportedModel(f"{file.path} has {name}, which this model does not have")


def _scale_positions(model: Any, factors: Tensor) -> None:
    """Llama 3's scaled frequencies, which llama.cpp divides by a tensor of factors."""
    rotary = model.model.rotary_emb
    if rotary.inv_freq.shape != factors.shape:
        raise UnsupportedModel(
            f"{ROPE_FACTORS} has {len(factors)} factors for {len(rotary.inv_freq)} frequencies"
        )
    with torch.no_grad():
        rotary.inv_freq.div_(factors)
        rotary.original_inv_freq = rotary.inv_freq.clone()
