"""Builds a model from weights that are partly quantised, each as it was stored.

transformers creates the modules, reads the other weights and computes the buffers (position tables,
embedding scales); modules with quantised weights are replaced while all modules are empty, by the
hook that its own quantisers use.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.falcon.modeling_falcon import FalconLinear
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.auto import (
    AUTO_QUANTIZATION_CONFIG_MAPPING,
    register_quantization_config,
    register_quantizer,
)
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from app.core.errors import UnsupportedModel
from app.model.cpu.kernels.quantized_panels import QuantizedWeight
from app.model.layers.architecture import is_plain_embedding
from app.model.layers.quantized import QuantizedEmbedding, QuantizedExperts, QuantizedLinear
from app.model.lean_imports import with_kernels

_METHOD = "leapjson-stored"
_LINEAR = (nn.Linear, FalconLinear)
_READ_AS_NUMBERS = "mixer.dt_proj.weight"
"""Mamba reads this weight without calling its module."""
_OF_EXPERTS = ("gate_up_proj", "down_proj")
"""Parameters of all experts of a layer."""


def assemble(
    config: PretrainedConfig,
    stored: Mapping[str, QuantizedWeight],
    dtype: torch.dtype,
    *,
    folder: str | None = None,
    plain: Mapping[str, Tensor] | None = None,
) -> PreTrainedModel:
    """The model on the CPU; ``stored``: quantised weights by the names of their modules, or of the
    parameters for all experts of a layer.

    All others come from ``folder``'s safetensors or are ``plain``, by the names of parameters.
    Raises ``UnsupportedModel`` where one is missing, or stored for a module that is neither a
    linear layer nor an embedding of its shape.
    """
    if _METHOD not in AUTO_QUANTIZATION_CONFIG_MAPPING:
        register_quantization_config(_METHOD)(_Stored)
        register_quantizer(_METHOD)(_Exchange)
    kind: Any = type(empty_model(config, dtype))
    with warnings.catch_warnings():
        # Some models initialise their weights, which are empty here: QuantizedWeight holds them.
        warnings.filterwarnings("ignore", "Initializing zero-element", UserWarning)
        model, report = kind.from_pretrained(
            folder,
            config=config,
            state_dict=None if plain is None else dict(plain),
            quantization_config=_Stored(stored),
            dtype=dtype,
            use_safetensors=True,
            attn_implementation="eager",
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    require_complete(report, folder or "the GGUF file")
    del model.config.quantization_config  # it holds the weights
    whole: PreTrainedModel = model
    return whole


def require_complete(report: Mapping[str, Any], place: str) -> None:
    """Refuse a model with weights that ``place`` lacks or has in another shape: transformers fills
    them with noise and only logs it."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise UnsupportedModel(
            f"{place} lacks {len(missing)} weights of its architecture, {missing[0]} among them"
        )
    for name, stored, configured in sorted(report["mismatched_keys"]):
        raise UnsupportedModel(
            f"{place} stores {name} with the shape {[*stored]}, but its configuration gives "
            f"{[*configured]}"
        )


def require_used(report: Mapping[str, Any], place: str, model: PreTrainedModel) -> None:
    """Refuse stored biases that the configuration turns off. transformers ignores them; it logs the
    names of all weights that it ignores."""
    modules = dict(model.named_modules())
    for name in sorted(report["unexpected_keys"]):
        owner, _, leaf = name.rpartition(".")
        if owner in modules and leaf in modules[owner]._parameters:
            raise UnsupportedModel(f"{place} stores {name}, which its configuration turns off")


def empty_model(config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """Modules without memory, for their names and kinds."""

    def make() -> PreTrainedModel:
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                config, dtype=dtype, attn_implementation="eager", trust_remote_code=False
            )
        return model

    return with_kernels(make)


class _Stored(QuantizationConfigMixin):
    def __init__(self, weights: Mapping[str, QuantizedWeight]) -> None:
        self.quant_method: Any = _METHOD
        self.weights = weights

    def __deepcopy__(self, _: Any) -> _Stored:
        return self  # transformers copies configurations; weights must not be copied

    def to_dict(self) -> dict[str, Any]:
        return {"quant_method": self.quant_method}


class _Exchange(HfQuantizer):
    requires_calibration = False

    def _process_model_before_weight_loading(self, model: Any, **_: Any) -> Any:
        model._keys_to_ignore_on_load_unexpected |= {r"\.(qweight|qzeros|scales|g_idx)$"}
        stored: Any = self.quantization_config
        for name, weight in stored.weights.items():
            owner, _, leaf = name.rpartition(".")
            if owner.endswith(".experts") and leaf in _OF_EXPERTS:
                gate_up, down = (stored.weights.get(f"{owner}.{part}") for part in _OF_EXPERTS)
                if gate_up is None or down is None:
                    raise UnsupportedModel(
                        f"only some weights of {owner} are quantised, which is not supported; set "
                        "LEAPJSON_DEQUANTIZE=true to serve the model with 16-bit weights"
                    )
                if weight is down:
                    experts = QuantizedExperts(model.get_submodule(owner), gate_up, down)
                    model.set_submodule(owner, experts)
                continue
            try:
                module = model.get_submodule(name)
            except AttributeError as error:
                raise UnsupportedModel(f"no layer for the quantised weights {name}") from error
            model.set_submodule(name, _holding(weight, name, module))
        stored.weights = {}  # the model keeps this configuration, which must not keep weights alive
        return model

    def is_serializable(self, *_: Any, **__: Any) -> bool:
        return False

    @property
    def is_trainable(self) -> bool:
        return False


def holds_stored(module: nn.Module, parameter: str) -> bool:
    """Whether a quantised weight can replace the parameter of ``module`` with that name."""
    leaf = parameter.rpartition(".")[2]
    if isinstance(module, nn.Embedding):
        return is_plain_embedding(module)
    if type(module) in (*_LINEAR, Conv1D):
        return leaf == "weight" and not parameter.endswith(_READ_AS_NUMBERS)
    return leaf in _OF_EXPERTS and hasattr(module, "_apply_gate")


def _holding(weight: QuantizedWeight, name: str, module: Any) -> nn.Module:
    shape = (weight.outputs, weight.inputs)
    made: nn.Module | None = None
    if type(module) in _LINEAR:
        made = QuantizedLinear(weight, module.bias)
    elif type(module) is Conv1D:
        made, shape = QuantizedLinear(weight, module.bias), shape[::-1]
    elif is_plain_embedding(module):
        made = QuantizedEmbedding(weight, module)
    if made is None:
        raise UnsupportedModel(
            f"{name} is a quantised {type(module).__name__}; only linear layers, embeddings and "
            "experts can be quantised"
        )
    if tuple(module.weight.shape) != shape:
        raise UnsupportedModel(f"{name} has shape {shape}, not {tuple(module.weight.shape)}")
    return made
