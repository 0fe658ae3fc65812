"""An adapter's files, as peft saves them: ``adapter_config.json``, ``adapter_model.safetensors``.

The weights name their modules; the configuration has their scale and further settings. A setting
that changes the forward pass in an unsupported way is refused by name, and so is a field that is
not known to be harmless.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from app.core.errors import InvalidAdapter

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"

_READ = frozenset(
    {
        "alpha_pattern", "exclude_modules", "init_lora_weights", "layers_pattern",
        "layers_to_transform", "lora_alpha", "peft_type", "r", "rank_pattern", "target_modules",
        "use_rslora",
    }
)  # fmt: skip
_HARMLESS = frozenset(
    {
        # About training, or about how the first weights were made.
        "corda_config", "eva_config", "inference_mode", "loftq_config", "lora_dropout",
        "lora_ga_config", "revision", "runtime_config",
        # About files and versions; fan_in_fan_out is about merging into a transposed weight.
        "auto_mapping", "base_model_name_or_path", "ensure_weight_tying", "fan_in_fan_out",
        "megatron_core", "peft_version", "qalora_group_size", "task_type",
    }
)  # fmt: skip
_INITS = (None, True, False, "gaussian", "eva", "orthogonal")
"""Initialisations that leave the base model's weights unchanged. Others (pissa, loftq, ...) train
beside a changed model, unless peft's converter wrote the adapter."""
_NOTHING: tuple[Any, ...] = (None, False, "none", [], {})
"""Values that disable any other field."""

_PREFIX = "base_model.model."
_KEY = re.compile(r"(?P<module>.+)\.lora_(?P<part>[AB])\.weight")


@dataclass(frozen=True, slots=True)
class Pair:
    """Adapter weights of one module: ``b (a x)`` is added to its result for an input x [K]."""

    a: Tensor
    """Shape [rank, K]."""
    b: Tensor
    """Shape [N, rank], in float32, the scale multiplied in."""

    @property
    def rank(self) -> int:
        return len(self.a)


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """A whole adapter in host memory."""

    pairs: Mapping[str, Pair]
    """Weights by module name, as in the base model."""
    wanted: Sequence[re.Pattern[str]]
    """Patterns of the configuration for module names: a module that matches must have weights."""
    identity: str

    @property
    def rank(self) -> int:
        """The largest rank of its pairs."""
        return max(pair.rank for pair in self.pairs.values())


def read_adapter(place: str) -> AdapterWeights:
    """Read an adapter from a folder or the Hub. Raises ``InvalidAdapter``.

    Costs a copy of the weights in float32.
    """
    folder = _folder(place)
    try:
        data = (folder / CONFIG).read_bytes()
    except OSError as error:
        raise InvalidAdapter(f"{CONFIG} cannot be read: {error.strerror}") from error
    config = _config(data)
    pairs, digest = _pairs(folder / WEIGHTS, config)
    digest.update(data)
    return AdapterWeights(pairs, _wanted(config), digest.hexdigest())


def _folder(place: str) -> Path:
    if Path(place).is_dir():
        return Path(place)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(place, allow_patterns=[CONFIG, WEIGHTS]))
    except (OSError, ValueError) as error:
        raise InvalidAdapter(f"{place} is no folder and not on the Hub: {error}") from error


def _config(data: bytes) -> dict[str, Any]:
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidAdapter(f"{CONFIG} is not JSON: {error}") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise InvalidAdapter(f"{CONFIG} does not describe a LoRA adapter: peft_type must be LORA")
    for name, value in config.items():
        if name not in _READ | _HARMLESS and value not in _NOTHING:
            raise InvalidAdapter(f"{name}: {value!r} in {CONFIG} is not supported")
    if config.get("init_lora_weights") not in _INITS:
        raise InvalidAdapter(
            f"init_lora_weights is {config['init_lora_weights']!r}, which changes the base model; "
            "have peft convert the adapter (path_initial_model_for_weight_conversion)"
        )
    for name in ("r", "lora_alpha"):
        if not _is_positive(config.get(name)):
            raise InvalidAdapter(f"{name} in {CONFIG} must be above 0")
    for name in ("rank_pattern", "alpha_pattern"):
        table = config.get(name) or {}
        if not isinstance(table, dict) or not all(map(_is_positive, table.values())):
            raise InvalidAdapter(f"{name} in {CONFIG} must be an object of numbers above 0")
        # Compiled here: there may be a pattern for each of a thousand modules.
        config[name] = [(_compiled(rf"(.*\.)?({key})"), value) for key, value in table.items()]
    targets = config.get("target_modules") or []
    if not isinstance(targets, str | list) or not all(isinstance(each, str) for each in targets):
        raise InvalidAdapter(f"target_modules in {CONFIG} must be a pattern or a list of names")
    return config


def _is_positive(value: object) -> bool:
    return type(value) in (int, float) and 0 < cast(float, value) <= sys.float_info.max


def _wanted(config: Mapping[str, Any]) -> list[re.Pattern[str]]:
    """Patterns of ``target_modules``; none if other fields also choose the modules."""
    if config.get("exclude_modules") or config.get("layers_to_transform") not in (None, []):
        return []
    targets = config.get("target_modules")
    if isinstance(targets, str):
        return [] if targets == "all-linear" else [_compiled(targets)]
    return [re.compile(rf"(.*\.)?{re.escape(name)}") for name in targets or ()]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidAdapter(f"{CONFIG} has an invalid pattern {pattern!r}: {error}") from error


def _pairs(path: Path, config: Mapping[str, Any]) -> tuple[dict[str, Pair], Any]:
    """The pairs by module, and a digest of the weights."""
    digest = blake2b(digest_size=16)
    parts: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(path, framework="pt") as file:
            for key in sorted(file.keys()):
                found = _KEY.fullmatch(key.removeprefix(_PREFIX))
                if found is None:
                    raise InvalidAdapter(f"{key} in {WEIGHTS} is not supported")
                tensor = file.get_tensor(key)
                digest.update(f"{key} {tensor.dtype} {[*tensor.shape]}\n".encode())
                digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
                tensor = tensor.float()
                if not tensor.isfinite().all():
                    raise InvalidAdapter(f"{key} has numbers that are not finite")
                parts.setdefault(found["module"], {})[found["part"]] = tensor
    except (OSError, SafetensorError) as error:
        raise InvalidAdapter(f"{WEIGHTS} cannot be read: {error}") from error
    if not parts:
        raise InvalidAdapter(f"{WEIGHTS} has no weights")
    return {module: _pair(module, both, config) for module, both in parts.items()}, digest


def _pair(module: str, parts: Mapping[str, Tensor], config: Mapping[str, Any]) -> Pair:
    for part in ("A", "B"):
        if part not in parts:
            raise InvalidAdapter(f"{module} has no lora_{part}")
    a, b = parts["A"], parts["B"]
    rank = int(_of_module(config["rank_pattern"], module, config["r"]))
    if a.ndim != 2 or b.ndim != 2 or len(a) != rank or b.shape[1] != rank:
        raise InvalidAdapter(
            f"{module}: lora_A is {[*a.shape]} and lora_B {[*b.shape]}, but the rank is {rank}"
        )
    alpha = _of_module(config["alpha_pattern"], module, config["lora_alpha"])
    return Pair(a, b * (alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank))


def _of_module(
    patterns: Sequence[tuple[re.Pattern[str], float]], module: str, default: float
) -> float:
    """The value whose pattern matches first: a pattern matches the end of a module's name."""
    return next((value for pattern, value in patterns if pattern.fullmatch(module)), default)
