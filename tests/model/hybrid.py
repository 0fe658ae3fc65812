"""Tiny random models of every type with recurrent layers, and sequences with their states."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from app.core.step import Span
from app.model.composition import load_runner
from app.model.runner import TorchRunner
from tests.model.tiny import VOCAB, runner_config

_SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_DELTA = _SMALL | {
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "decoder_sparse_step": 1,
}
_MAMBA2 = _SMALL | {
    "num_hidden_layers": 3,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 16,
}
_SHORT = _SMALL | {
    "num_hidden_layers": 3,
    "layer_types": ["conv", "full_attention", "conv"],
    "conv_L_cache": 3,
}

KINDS: dict[str, dict[str, Any]] = {
    "qwen3_next": _DELTA | _EXPERTS,
    "qwen3_5_text": _DELTA,
    "qwen3_5_moe_text": _DELTA | _EXPERTS,
    "olmo_hybrid": _DELTA | {"num_key_value_heads": 4, "linear_num_key_heads": 4},
    "kimi_linear": _SMALL
    | {
        "num_key_value_heads": 4,
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "linear_num_heads": 4,
        "linear_head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
        "kv_lora_rank": 16,
        "q_lora_rank": None,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
    },
    "nemotron_h": _SMALL
    | {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 16,
        "n_groups": 2,
        "chunk_size": 16,
        "n_routed_experts": 4,
        "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 32,
    },
    "falcon_h1": _MAMBA2 | {"num_hidden_layers": 2, "mamba_d_ssm": 64},
    "granitemoehybrid": _MAMBA2
    | {
        "layer_types": ["mamba", "attention", "mamba"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 32,
    },
    "bamba": _MAMBA2 | {"attn_layer_indices": [1]},
    "mamba2": _SMALL
    | {
        "num_hidden_layers": 2,
        "num_heads": 4,
        "state_size": 16,
        "n_groups": 2,
        "expand": 2,
        "chunk_size": 16,
    },
    "zamba2": _SMALL
    | {
        "num_hidden_layers": 4,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "hybrid_layer_ids": [1, 3],
        "num_mem_blocks": 1,
        "mamba_d_state": 16,
        "mamba_ngroups": 1,
        "n_mamba_heads": 4,
        "mamba_headdim": 16,
        "chunk_size": 16,
    },
    "jamba": _SMALL
    | {
        "num_hidden_layers": 3,
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
    },
    "mamba": _SMALL | {"num_hidden_layers": 2, "state_size": 8},
    "minimax": _SMALL
    | {
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "num_local_experts": 4,
        "block_size": 16,
    },
    "recurrent_gemma": _SMALL | {"num_hidden_layers": 3, "attention_window_size": 7},
    "rwkv": {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "context_length": 512},
    "xlstm": {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_heads": 4,
        "num_hidden_layers": 2,
        "num_blocks": 2,
        "chunk_size": 16,
    },
    "inkling_text": _SMALL
    | {
        "num_hidden_layers": 2,
        "layer_types": ["hybrid", "hybrid_sliding"],
        "mlp_layer_types": ["dense", "dense"],
        "swa_num_attention_heads": 4,
        "swa_head_dim": 16,
        "swa_num_key_value_heads": 2,
        "sliding_window_size": 7,
        "d_rel": 4,
        "rel_extent": 10,
        "log_scaling_n_floor": 8,
    },
    "qwen4_exp_text": _DELTA
    | _EXPERTS
    | {
        "layer_types": ["linear_attention", "indexed_attention", "linear_attention"],
        "ple_layer_ids": [1],
        "ple_embed_dim": 32,
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 50,
        "split_ngram_parts": 1,
        "eos_token_id": 40,
        "hc_count": 2,
        "hc_lowrank": 8,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 128,
        "indexer_compress_ratio": 4,
    },
    "zamba": _SMALL
    | {
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
        "num_key_value_heads": 4,
        "attention_head_dim": 16,
        "mamba_dt_rank": 4,
    },
    "zaya": _SMALL
    | {"num_hidden_layers": 2, "num_experts": 4, "num_experts_per_tok": 1, "head_dim": 8},
    "falcon_mamba": _SMALL | {"num_hidden_layers": 2, "state_size": 8},
    "lfm2": _SHORT | {"block_auto_adjust_ff_dim": False},
    "lfm2_moe": _SHORT
    | {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "num_dense_layers": 1,
    },
}


def lively_model(kind: str, **changes: Any) -> PreTrainedModel:
    """A model with random weights that make states matter; initial weights hardly do."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **(KINDS[kind] | changes))
    made: Any = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model: PreTrainedModel = made.float().eval()
    with torch.no_grad():
        for name, part in model.named_parameters():
            if part.ndim >= 2 and "A_log" not in name:
                part.add_(torch.randn_like(part) * 0.12)
            elif "dt_bias" in name or "dt_proj.bias" in name:
                part.add_(torch.randn_like(part) * 0.3 - 1.0)
    return model


def hybrid_runner(folder: Path, model: PreTrainedModel, **changes: Any) -> TorchRunner:
    """A runner with the weights of ``model``, saved to ``folder`` and loaded from it."""
    model.save_pretrained(folder)
    return load_runner(runner_config(str(folder), random_weights=False, **changes))


class Slots:
    """Free state slots, in random order."""

    def __init__(self, count: int, dice: random.Random) -> None:
        self.free = list(range(1, count))
        dice.shuffle(self.free)

    def take(self) -> int:
        return self.free.pop()

    def give_back(self, slots: Sequence[int]) -> None:
        self.free.extend(slots)


class StatefulSequence:
    """A text with states at some of its positions; its next span starts at the last of them."""

    def __init__(self, text: Sequence[int], tables: list[list[int]], slots: Slots) -> None:
        self.text = list(text)
        self.tables = tables
        """Blocks for the whole text, by cache group."""
        self.kept: list[tuple[int, int]] = [(0, 0)]
        """Positions, ascending, and the slots of the states there."""
        self._slots = slots

    @property
    def computed(self) -> int:
        return self.kept[-1][0]

    def go_back(self, position: int) -> None:
        """Go back to the last state at or before ``position``; frees the later ones."""
        while self.kept[-1][0] > position:
            self._slots.give_back([self.kept.pop()[1]])

    def span(self, length: int, dice: random.Random, *, wrong: int = 0) -> Span:
        """A span of the next ``length`` tokens and ``wrong`` wrong ones.

        It saves states at random positions and at its end; the last sometimes overwrites the state
        that it starts from. The caller has to go back from states after wrong tokens.
        """
        start, state = self.kept[-1]
        total = length + wrong
        inside = [at for at in range(1, total) if dice.random() < 4 / total]
        saves = [(at, self._slots.take()) for at in inside]
        if state and dice.random() < 0.5:
            self.kept.pop()
            saves.append((total, state))
        else:
            saves.append((total, self._slots.take()))
        self.kept.extend([(start + at, slot) for at, slot in saves])
        tokens = self.text[start : start + length]
        tokens += [(token + 1) % VOCAB for token in self.text[start + length :][:wrong]]
        assert len(tokens) == total
        return Span(tokens, start, self.tables, state=state, saves=saves)
