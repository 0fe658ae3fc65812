"""Every known family of models loaded as the server does: checked, fused, captured, replayed."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import transformers
from triton import knobs

from app.model import self_check
from app.model.config import DTypeName, ModelConfig
from tools.bench.gpu_report.device import device_of, kernels_loaded, release
from tools.bench.gpu_report.model import load, replays_compared
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.record import Record

SIZES: dict[str, Any] = {
    "vocab_size": 4096, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
    "max_position_embeddings": 4096, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
TINY_SIZES = SIZES | {
    "vocab_size": 128, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 4, "head_dim": 8, "max_position_embeddings": 128,
}  # fmt: skip
GEMMA = {"head_dim": 256, "sliding_window": 256, "query_pre_attn_scalar": 256}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {}),
    "mistral, window": ("MistralConfig", {"sliding_window": 256}),
    "gemma2": ("Gemma2Config", GEMMA),
    "gemma3": ("Gemma3TextConfig", GEMMA | {"num_hidden_layers": 6}),
    "gpt-oss": ("GptOssConfig", {"sliding_window": 128, "num_local_experts": 4, "head_dim": 64}),
    "qwen3.5, states": (
        "Qwen3_5TextConfig",
        {
            "linear_num_key_heads": 8, "linear_num_value_heads": 8,
            "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        },
    ),
    "falcon-h1, states": (
        "FalconH1Config", {"mamba_d_ssm": 1024, "mamba_n_heads": 16, "mamba_d_head": 64},
    ),
    "deepseek v3, latents": (
        "DeepseekV3Config",
        {
            "num_key_value_heads": 8, "q_lora_rank": 256, "kv_lora_rank": 512,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "head_dim": 64,
            "first_k_dense_replace": 4,
        },
    ),
    "gpt2, not fused": ("GPT2Config", {"n_embd": 1024, "n_layer": 4, "n_head": 8}),
}  # fmt: skip


def run(record: Record, options: Options) -> None:
    device = device_of(options)
    cases: list[tuple[str, DTypeName]] = [(name, "bfloat16") for name in FAMILIES]
    cases += [("llama", "float32"), ("qwen3", "float16")]
    tiny: list[tuple[str, DTypeName]] = [("llama", "float32")]
    for name, dtype in tiny if options.tiny else cases:
        if record.seconds_left < 6:
            record.left_out(f"{name} in {dtype}", "no time left")
            continue
        try:
            _family(record, options, name, dtype)
        except Exception as error:
            record.failed(f"{name} in {dtype}", error)
        release(device)


def _family(record: Record, options: Options, name: str, dtype: DTypeName) -> None:
    kind, changes = FAMILIES[name]
    sizes = (TINY_SIZES if options.tiny else SIZES) | changes
    errors: list[float] = []
    measure = self_check.worst_error

    def worst_error(*arguments: Any) -> float:
        errors.append(measure(*arguments))
        return errors[-1]

    start = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        kernels_loaded() as kernels,
        replays_compared() as replays,
    ):
        getattr(transformers, kind)(**sizes).save_pretrained(folder)
        self_check.worst_error = worst_error  # type: ignore[assignment]
        try:
            runner = load(
                options,
                ModelConfig(
                    model=folder,
                    random_weights=True,
                    device="cuda" if options.device == "cuda" else "cpu",
                    dtype=dtype,
                    kv_cache_bytes=(1 << 20) if options.tiny else (1 << 30),
                    max_graph_tokens=2 if options.tiny else 64,
                ),
            )
        finally:
            self_check.worst_error = measure
            # Keep the next family's kernels out of this family's count.
            knobs.runtime.jit_post_compile_hook = None
    if runner.description.cuda_graphs and not replays:
        record.failed(f"{name} in {dtype}", "no replay was compared with its reference")
    record.row(
        "loaded; errors of the step against transformers' eager layers", family=f"{name}, {dtype}",
        errors=" ".join(f"{error:.2g}" for error in errors),
        replays=len(replays),
        worst=max((each.launched for each in replays), default=""),
        graphs=runner.description.cuda_graphs, kernels=len(kernels),
        seconds=time.perf_counter() - start,
    )  # fmt: skip
