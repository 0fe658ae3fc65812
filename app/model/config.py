"""The frozen configuration for loading and running a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DTypeName = Literal["auto", "float32", "bfloat16", "float16"]
DeviceName = Literal["auto", "cpu", "cuda"]
QuantizeName = Literal["int8", "int4"]
KvCacheDTypeName = Literal["auto", "fp8"]


@dataclass(frozen=True, slots=True)
class AdaptersConfig:
    """LoRA adapters beside the model."""

    named: Mapping[str, str] = field(default_factory=dict)
    """Adapters loaded with the model: folder or Hub name, by adapter name."""
    count: int = 8
    """Maximum number of adapters loaded at a time."""
    rank: int = 16
    """Maximum rank of an adapter. GPU memory grows with ``count`` and ``rank``."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Settings of ``load_runner``. Only ``model`` has no default."""

    model: str
    """A folder with ``config.json`` and safetensors weights, a name on the Hugging Face Hub, or the
    path of a GGUF file."""
    dtype: DTypeName = "auto"
    """``auto``: bfloat16 if the hardware supports it, else float16 on GPUs with fast products in
    float16, else float32."""
    device: DeviceName = "auto"
    max_model_len: int | None = None
    """Maximum positions of a sequence; None: the smaller of model limit and cache size."""
    block_size: int = 16
    """Tokens in a cache block."""
    kv_cache_bytes: int | None = None
    """Memory for keys and values, and for states of recurrent layers. None: 1 GiB on the CPU, 2 GiB
    with such layers; on CUDA the rest of ``cuda_memory_share``."""
    kv_cache_dtype: KvCacheDTypeName = "auto"
    """Type of cached keys and values. ``auto``: the model's. ``fp8``: 8 bits, half the memory of a
    16-bit type; CUDA only."""
    cuda_memory_share: float = 0.9
    """Share of the GPU's memory that this process may take, all in all: weights, the largest step,
    graphs and, if ``kv_cache_bytes`` is None, the cache, which gets the rest."""
    max_batch_tokens: int = 512
    """Maximum tokens of a step."""
    max_running: int = 64
    """Maximum sequences of a step."""
    max_rows_each: int = 17
    """Maximum rows of logits of one sequence in a step, for draws."""
    max_scored_rows: int = 32
    """Maximum rows of logits of one sequence in a step, for scores of token sets."""
    vocab_size: int | None = None
    """Token ids of the tokenizer; further logits are padding and never drawn. None: all."""
    dequantize: bool = False
    """Convert weights that are stored in fewer bits to 16 bits (``dtype``)."""
    quantize: QuantizeName | None = None
    """Bits for weights of linear layers, a scale for each 32 inputs; CPU only. None: as stored."""
    images: bool = True
    """Load the model's vision encoder, if it has one; False: text only."""
    image_tokens: int = 4096
    """Maximum tokens of one image."""
    random_weights: bool = False
    """Use random weights (the same every time); for benchmarks and tests."""
    threads: int | None = None
    """CPU threads of one forward pass; None: torch's default, but no more than are granted."""
    batch_invariant: bool = False
    """Give a token the same numbers, bit for bit, whatever else its step computes and however its
    sequence is cut into steps. Slower; refused where it is not supported."""
    cuda_graphs: bool = True
    """Replay small steps from CUDA graphs; no effect on the CPU."""
    tensor_parallel: int = 1
    """Processes that share the layers, each on a device of its own."""
    adapters: AdaptersConfig | None = None
    """None: adapters cannot be loaded, and no memory is reserved for them."""
    max_graph_tokens: int = 1024
    """Tokens in the largest captured step; larger ones compute for longer than they launch."""
