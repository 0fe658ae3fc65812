"""Models of Llama's architecture by their sizes: bytes, operations, a folder without weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.bench.model_folder import write_llama


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int = 128_256
    tied: bool = False
    """Whether the output layer shares the embedding's weights."""
    positions: int = 131_072
    item: int = 2
    """Bytes of a weight."""

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def group(self) -> int:
        """Query heads for each key head."""
        return self.heads // self.kv_heads

    @property
    def product_weights(self) -> Mapping[str, int]:
        """Numbers in the weights of a layer, by product; q, k and v are one, and gate and up."""
        attention = (self.heads + 2 * self.kv_heads) * self.head_dim
        return {
            "qkv": self.hidden * attention,
            "output": self.heads * self.head_dim * self.hidden,
            "gate and up": 2 * self.hidden * self.intermediate,
            "down": self.intermediate * self.hidden,
        }

    @property
    def weight_bytes(self) -> int:
        """Bytes that a decode step reads: all weights but the embedding, which it reads by row."""
        layer = sum(self.product_weights.values()) + 2 * self.hidden
        return self.item * (self.layers * layer + self.hidden * (self.vocabulary + 1))

    @property
    def token_kv_bytes(self) -> int:
        """Keys and values of one token, all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.item

    def step_bytes(self, sequences: int, context: int) -> int:
        """Minimum bytes that a step moves: weights once, keys and values of every sequence once."""
        return self.weight_bytes + sequences * context * self.token_kv_bytes

    def operations(self, tokens: int, context: float, rows: int) -> float:
        """Floating-point operations of ``tokens`` that see ``context`` keys on average.

        ``rows``: number of rows of logits.
        """
        products = 2 * sum(self.product_weights.values()) * self.layers * tokens
        attention = 4 * self.heads * self.head_dim * context * tokens * self.layers
        return products + attention + 2 * rows * self.hidden * self.vocabulary

    def write(self, folder: Path, tokenizer: Path | None) -> int:
        """Write a model folder without weights; returns the number of its tokenizer's ids."""
        return write_llama(
            folder,
            tokenizer,
            vocabulary=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            max_position_embeddings=self.positions,
            tie_word_embeddings=self.tied,
        )


LLAMA_8B = Shape("8B", 4096, 14336, 32, 32, 8)
LLAMA_1B = Shape("1B", 2048, 8192, 16, 32, 8, tied=True)
TINY = Shape("tiny", 32, 48, 1, 2, 1, vocabulary=2_560, positions=512, item=4)
