"""How a model is loaded and run: the one frozen configuration of this layer."""

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
    """Loaded with the model: names, and folders or names on the Hub."""
    count: int = 8
    """How many may be loaded at a time."""
    rank: int = 16
    """The largest rank of one. Memory on a GPU grows with both."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What ``load_runner`` needs to know. Only ``model`` has no default."""

    model: str
    """A folder with ``config.json`` and safetensors weights, a name on the Hugging Face Hub, or the
    path of a GGUF file."""
    dtype: DTypeName = "auto"
    """``auto``: bfloat16 where it is in hardware, else float16 on GPUs that have fast products of
    it, else float32."""
    device: DeviceName = "auto"
    max_model_len: int | None = None
    """Positions a sequence may have; None: what the model was made for and the cache can hold."""
    block_size: int = 16
    """Tokens in a cache block."""
    kv_cache_bytes: int | None = None
    """Memory for keys and values, and for states of recurrent layers. None: 1 GiB on the CPU, 2 GiB
    where there are such layers; what ``cuda_memory_share`` leaves on CUDA."""
    kv_cache_dtype: KvCacheDTypeName = "auto"
    """Type that keys and values are kept in. ``auto``: that of the model. ``fp8``: half of that; on
    CUDA alone."""
    cuda_memory_share: float = 0.9
    """Share of the GPU's memory that this process may take, all in all: weights, the largest step,
    graphs and, where ``kv_cache_bytes`` is None, the cache, which gets what is left."""
    max_batch_tokens: int = 512
    """Tokens of the largest step that will be run."""
    max_running: int = 64
    """Sequences of the largest step."""
    max_rows_each: int = 17
    """Rows of logits that one sequence may want of a step, to draw from them."""
    max_scored_rows: int = 32
    """The same, to score sets of tokens in them."""
    vocab_size: int | None = None
    """Token ids the tokenizer knows; wider logits are padding and never drawn. None: all."""
    dequantize: bool = False
    """Make 16-bit weights (those of ``dtype``) of ones that are stored in fewer bits."""
    quantize: QuantizeName | None = None
    """Bits for weights of linear layers, a scale for each 32 inputs; CPU only. None: as stored."""
    images: bool = True
    """Keep what of a model sees, where it does; False: it is served as text."""
    image_tokens: int = 4096
    """Tokens that one image may count for."""
    random_weights: bool = False
    """Make weights up from the configuration (same every time); for benchmarks and tests."""
    threads: int | None = None
    """CPU threads of one forward pass; None: torch's default, but no more than are granted."""
    pack_linears: bool = True
    """Repack bfloat16 weights for the CPU's matrix units where this torch can do it."""
    batch_invariant: bool = False
    """Give a token the same numbers, bit for bit, whatever else its step computes and however its
    sequence is cut into steps. Slower; refused where it cannot be had."""
    cuda_graphs: bool = True
    """Replay small steps from CUDA graphs; no effect on the CPU."""
    tensor_parallel: int = 1
    """Processes that share the layers, each on a device of its own."""
    adapters: AdaptersConfig | None = None
    """None: none can be loaded, and nothing is kept ready for them."""
    max_graph_tokens: int = 1024
    """Tokens in the largest captured step; larger ones compute for longer than they launch."""
