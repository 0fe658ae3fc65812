"""Checkpoints with weights of 8 or 4 bits: the requirements for running each kind as stored.

transformers reads every kind here. Without a package, a kernel or the hardware it dequantises to 16
bits, two to four times as large, with a warning at most; some weights only in the first pass. Here
all of that is refused, unless ``dequantize`` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import import_utils

from app.core.errors import UnsupportedModel


@dataclass(frozen=True, slots=True)
class _Kind:
    """How transformers runs one kind of checkpoint with its weights as they are stored."""

    packages: tuple[tuple[str, Callable[[], bool]], ...]
    """Requirements, as for pip, and whether each is there."""
    capability: tuple[int, int] | None = None
    """The least compute capability of a GPU that runs it; None: any."""
    on_cpu: bool = False
    config: str | None = None
    """transformers' configuration that takes ``dequantize``; None: it cannot be dequantised."""


_KERNELS = (
    f"kernels>={import_utils.KERNELS_MIN_VERSION},<{import_utils.KERNELS_MAX_VERSION}",
    import_utils.is_kernels_available,
)
_GPTQMODEL = ("gptqmodel>=1.4.3", import_utils.is_gptqmodel_available)

_KINDS: Mapping[str, _Kind] = {
    "fp8": _Kind((_KERNELS,), (8, 9), False, "FineGrainedFP8Config"),
    "mxfp4": _Kind((_KERNELS,), (7, 5), False, "Mxfp4Config"),
    "compressed-tensors": _Kind(
        (("compressed-tensors>=0.15.0", import_utils.is_compressed_tensors_available),),
        (8, 9),
        False,
        "CompressedTensorsConfig",
    ),
    "awq": _Kind((_GPTQMODEL,)),
    "gptq": _Kind((_GPTQMODEL, ("optimum>=1.24.0", import_utils.is_optimum_available))),
    "bitsandbytes": _Kind(
        (("bitsandbytes>=0.46.1", import_utils.is_bitsandbytes_available),), on_cpu=True
    ),
    "torchao": _Kind((("torchao>=0.15.0", import_utils.is_torchao_available),), on_cpu=True),
}
"""By ``quant_method``. Packages and capabilities: transformers' quantizers, 5.17 to 5.24."""


def loading_options(
    settings: PretrainedConfig, device: torch.device, *, dequantize: bool
) -> dict[str, Any]:
    """Options of ``from_pretrained`` for stored quantisation; empty if there is none.

    With ``dequantize`` the weights become those of the model's type, where the kind allows it.
    Raises ``UnsupportedModel``, with the remedy, if they would not be kept as stored.
    """
    stored = stored_quantization(settings)
    if stored is None:
        return {}
    method = str(stored["quant_method"])
    kind = _KINDS.get(method)
    if kind is None:
        raise UnsupportedModel(
            f"the weights are quantised by {method}, which is not supported; supported are "
            f"{', '.join(_KINDS)}"
        )
    if dequantize:
        if kind.config is None:
            raise UnsupportedModel(
                f"dequantize is set, but weights quantised by {method} cannot be dequantised at "
                "load"
            )
        return {"quantization_config": getattr(transformers, kind.config)(dequantize=True)}
    way_out = ""
    if kind.config is not None:
        way_out = "; or set LEAPJSON_DEQUANTIZE=true to serve it with 16-bit weights"
    if device.type == "cpu" and not kind.on_cpu:
        raise UnsupportedModel(
            f"the weights are quantised by {method}, for which there are no kernels on the CPU"
            f"{way_out}"
        )
    missing = [requirement for requirement, is_there in kind.packages if not is_there()]
    if missing:
        quoted = " ".join([f"'{requirement}'" for requirement in missing])
        raise UnsupportedModel(
            f"the weights are quantised by {method}, which needs: pip install {quoted}{way_out}"
        )
    if device.type == "cuda" and kind.capability is not None:
        found = torch.cuda.get_device_capability(device)
        if found < kind.capability:
            raise UnsupportedModel(
                f"the weights are quantised by {method}, which takes a GPU of compute capability "
                "{}.{}; this one has {}.{}".format(*kind.capability, *found)
                + way_out
            )
    if method == "compressed-tensors":
        return {"quantization_config": _as_stored_in_fp8(stored, way_out)}
    return {}


def stored_quantization(settings: PretrainedConfig) -> Mapping[str, Any] | None:
    """Quantisation settings of a checkpoint's configuration; None: its weights are plain."""
    for config in (settings, settings.get_text_config()):
        stored = getattr(config, "quantization_config", None)
        if stored is not None:
            found: Mapping[str, Any] = stored if isinstance(stored, dict) else stored.to_dict()
            if found.get("load_in_8bit") or found.get("load_in_4bit"):
                return {**found, "quant_method": "bitsandbytes"}
            return {"quant_method": "an unnamed method", **found}
    return None


def require_as_stored(model: PreTrainedModel) -> None:
    """Refuse a model of a quantised checkpoint that transformers has dequantised unasked (it then
    removes ``quantization_config``), or whose weights were never quantised."""
    config = getattr(model.config, "quantization_config", None)
    if config is None or getattr(config, "dequantize", False):
        raise UnsupportedModel(
            "transformers cannot run this model's quantised weights on this device and "
            "dequantised them; set dequantize to allow that"
        )
    bitsandbytes = config.quant_method == "bitsandbytes"  # whose layers would fail when they run
    if bitsandbytes and weight_bytes(model).keys() <= {"float32", "float16", "bfloat16"}:
        raise UnsupportedModel(
            "config.json has a quantization_config, but no weight is quantised; remove it there"
        )


def require_no_growth(model: PreTrainedModel, loaded_bytes: int) -> None:
    """Refuse a model whose weights take more than ``loaded_bytes`` now that it has run.

    transformers may dequantise weights that it has no kernels for in the first pass.
    """
    now = sum(weight_bytes(model).values())
    if now > loaded_bytes and stored_quantization(model.config) is not None:
        raise UnsupportedModel(
            f"the model's quantised weights grew from {loaded_bytes} to {now} bytes in a forward "
            "pass; set dequantize to dequantise them at load"
        )


def weight_bytes(model: PreTrainedModel) -> dict[str, int]:
    """Memory of parameters and buffers, by the name of their type; shared memory counts once."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    for weight in (*model.parameters(), *model.buffers()):
        for tensor in _parts(weight):
            if tensor.data_ptr() not in seen:
                seen.add(tensor.data_ptr())
                name = str(tensor.dtype).removeprefix("torch.")
                found[name] = found.get(name, 0) + tensor.nbytes
    return found


def _parts(tensor: Any) -> Iterator[Tensor]:
    """Tensors within a tensor subclass (those of torchao); a plain tensor is its own part."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    names, _ = tensor.__tensor_flatten__()
    for name in names:
        yield from _parts(getattr(tensor, name))


def _as_stored_in_fp8(stored: Mapping[str, Any], way_out: str) -> Any:
    """The configuration that keeps weights of 8-bit floats; it has no other kernels."""
    weights = [group.get("weights") or {} for group in (stored.get("config_groups") or {}).values()]
    types = {f"{each.get('num_bits')}-bit {each.get('type')}" for each in weights}
    if types != {"8-bit float"}:
        raise UnsupportedModel(
            "compressed-tensors is supported only with 8-bit floats; these weights are "
            f"{', '.join(sorted(types)) or 'not described'}{way_out}"
        )
    config: Any = transformers.CompressedTensorsConfig
    return config(use_optimized_inference=True)
