"""Tiny models with random weights, and sequences with blocks from a pool."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from app.core.progress import SILENCE, Progress
from app.core.step import Span
from app.model.checkpoints.loading import language_part, load_whole
from app.model.composition import load_runner
from app.model.config import ModelConfig
from app.model.forward import RaggedForward
from app.model.inputs import lay_out
from app.model.runner import TorchRunner
from tests.steps import planned

VOCAB = 96

_SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {}),
    "mistral with a window": ("MistralConfig", {"sliding_window": 5}),
    "gemma2 with softcap and a window": (
        "Gemma2Config",
        {"sliding_window": 6, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 8},
    ),
    "gemma3 with a window": ("Gemma3TextConfig", {"sliding_window": 6, "num_hidden_layers": 6}),
    "gpt-oss with sinks and a window": (
        "GptOssConfig",
        {"sliding_window": 6, "num_local_experts": 2, "num_experts_per_tok": 1},
    ),
    "gpt2": (
        "GPT2Config",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    ),
    "phi3 with longrope": (
        "Phi3Config",
        {
            "original_max_position_embeddings": 16,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0] * 4,
                "long_factor": [4.0] * 4,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "deepseek with latent attention": (
        "DeepseekV3Config",
        {
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 8,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 4,
            "v_head_dim": 8,
            "first_k_dense_replace": 2,
        },
    ),
}


def save_config(folder: Path, name: str, **changes: Any) -> str:
    """Write ``config.json`` of one of ``CONFIGS`` and return its folder as a model name."""
    class_name, settings = CONFIGS[name]
    return save_kind(folder, class_name, **(settings | changes))


def save_kind(folder: Path, class_name: str, **settings: Any) -> str:
    """The same for any configuration class of transformers."""
    values = _SMALL | settings
    if class_name == "DeepseekV3Config":
        del values["head_dim"]
    config = getattr(transformers, class_name)(**values)
    config.save_pretrained(folder)
    return str(folder)


def runner_config(model: str, **changes: Any) -> ModelConfig:
    settings: dict[str, Any] = {
        "device": "cpu",
        "dtype": "float32",
        "block_size": 4,
        "kv_cache_bytes": 1 << 21,
        "random_weights": True,
    }
    return ModelConfig(model=model, **(settings | changes))


def tiny_runner(folder: Path, name: str, **changes: Any) -> TorchRunner:
    return load_runner(runner_config(save_config(folder, name), **changes))


def load_model(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, progress: Progress = SILENCE
) -> PreTrainedModel:
    """The part of a model that reads and writes text, as it is loaded."""
    return language_part(load_whole(config, device, dtype, progress=progress), device)


def eager_model(model: str, **changes: Any) -> PreTrainedModel:
    """The plain model with the random weights that a runner of the same folder has."""
    return load_model(runner_config(model, **changes), torch.device("cpu"), torch.float32)


class PagedSequence:
    """The known tokens of a sequence, the number of computed ones, and its blocks."""

    def __init__(
        self, tokens: Sequence[int], pool: list[int], shared: Sequence[int] = (), groups: int = 1
    ) -> None:
        """``groups``: number of cache groups; ``shared``: the first blocks in each of them."""
        self.tokens = list(tokens)
        self.tables = [list(shared) for _ in range(groups)]
        self.pool = pool
        self.computed = 0
        self.adapter = 0

    def span(self, length: int, block_size: int) -> Span:
        """The next ``length`` tokens, with blocks taken from the pool as needed."""
        end = self.computed + length
        for table in self.tables:
            while len(table) * block_size < end:
                table.append(self.pool.pop())
        span = Span(
            tokens=self.tokens[self.computed : end],
            start=self.computed,
            block_tables=tuple([tuple(table) for table in self.tables]),
            adapter=self.adapter,
        )
        self.computed = end
        return span


def varied_model(folder: str, dtype: torch.dtype = torch.bfloat16) -> PreTrainedModel:
    """A model in ``dtype`` with random bfloat16 weights; biases are not 0, and norms not 1."""
    config = ModelConfig(model=folder, random_weights=True, device="cpu")
    model: Any = load_model(config, torch.device("cpu"), torch.bfloat16)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    whole: PreTrainedModel = model.to(dtype)
    return whole


def random_texts(dice: random.Random, lengths: Sequence[int]) -> list[list[int]]:
    return [[dice.randrange(VOCAB) for _ in range(length)] for length in lengths]


@torch.inference_mode()
def eager_logits(model: PreTrainedModel, texts: Sequence[list[int]]) -> list[Tensor]:
    """Logits [tokens, V] of each text by transformers' own attention over all of it."""
    model.set_attn_implementation("eager")
    return [model(torch.tensor([text]), use_cache=False).logits[0].float() for text in texts]


def run_in_random_batches(
    forward: RaggedForward,
    groups: int,
    texts: Sequence[Sequence[int]],
    dice: random.Random,
    *,
    blocks: int = 60,
    lengths: Sequence[int] = (1, 1, 2, 5, 20),
) -> list[Tensor]:
    """Logits [tokens, V] of each text, computed in random chunks and random batches.

    Blocks have 4 tokens; chunks have one of ``lengths``.
    """
    pool = list(range(blocks))
    dice.shuffle(pool)
    sequences = [PagedSequence(text, pool, groups=groups) for text in texts]
    found = [torch.zeros(len(text), VOCAB) for text in texts]
    while any(s.computed < len(s.tokens) for s in sequences):
        chosen = [s for s in sequences if s.computed < len(s.tokens) and dice.random() < 0.8]
        if not chosen:
            continue
        spans: list[Span] = []
        rows: list[tuple[int, int]] = []
        places: list[tuple[int, int]] = []
        for sequence in chosen:
            left = len(sequence.tokens) - sequence.computed
            length = min(left, dice.choice(lengths))
            for offset in range(length):
                rows.append((len(spans), offset))
                places.append((sequences.index(sequence), sequence.computed + offset))
            spans.append(sequence.span(length, 4))
        logits = forward.run(lay_out(planned(spans=spans, rows=rows), 4))
        for (index, position), row in zip(places, logits, strict=True):
            found[index][position] = row.float().cpu()
    return found


def mean_error(rows: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """Relative error of the logits of a text, averaged over the texts."""
    errors = [float((a - b).norm() / b.norm()) for a, b in zip(rows, exact, strict=True)]
    return sum(errors) / len(errors)


def assert_close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    """Assert that the logits of texts are equal up to roundings of float32."""
    for rows, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(rows, wanted, atol=2e-4, rtol=1e-3)
