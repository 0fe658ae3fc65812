"""How a model is loaded and run: the one frozen configuration of this layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DTypeName = Literal["auto", "float32", "bfloat16", "float16"]
DeviceName = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What ``load_runner`` needs to know. Only ``model`` has no default."""

    model: str
    """A folder with ``config.json`` and safetensors weights, or a name on the Hugging Face Hub."""
    dtype: DTypeName = "auto"
    """``auto``: bfloat16 on CUDA and on CPUs that multiply it in hardware, float32 elsewhere."""
    device: DeviceName = "auto"
    max_model_len: int | None = None
    """Positions a sequence may have; None: what the model was made for and the cache can hold."""
    block_size: int = 16
    """Tokens in a cache block."""
    kv_cache_bytes: int | None = None
    """Memory for keys and values. None: 1 GiB on the CPU, a share of what is free on CUDA."""
    cuda_memory_share: float = 0.85
    """Share of the free GPU memory that the cache takes where ``kv_cache_bytes`` is None."""
    vocab_size: int | None = None
    """Token ids the tokenizer knows; wider logits are padding and never drawn. None: all."""
    random_weights: bool = False
    """Make weights up from the configuration (same every time); for benchmarks and tests."""
    threads: int | None = None
    """CPU threads of one forward pass; None: torch's default, but no more than are granted."""
    pack_linears: bool = True
    """Repack bfloat16 weights for the CPU's matrix units where this torch can do it."""
    cuda_graphs: bool = True
    """Replay small steps from CUDA graphs; no effect on the CPU."""
    max_graph_tokens: int = 1024
    """Tokens in the largest captured step; larger ones compute for longer than they launch."""
