"""Real tokenizers, in the form that each library needs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from tokenizers import Tokenizer

from app.text import Vocabulary
from tools import datasets

_ENDS = {"gpt2": "<|endoftext|>", "llama3_2": "<|end_of_text|>", "qwen2_5": "<|endoftext|>"}


@dataclass(frozen=True, slots=True)
class RealTokenizer:
    """One of the tokenizers of ``datasets.tokenizers``."""

    json: str
    """The text of ``tokenizer.json``."""
    vocabulary: Vocabulary
    end: int
    """The token that ends an answer."""
    backend: Tokenizer

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        return ids


@lru_cache(maxsize=3)
def tokenizer(name: str) -> RealTokenizer:
    """The tokenizer with this name."""
    text = datasets.tokenizer_json(datasets.tokenizers()[name]).decode()
    content = json.loads(text)
    end = next(t["id"] for t in content["added_tokens"] if t["content"] == _ENDS[name])
    backend = Tokenizer.from_str(text)
    backend.encode_special_tokens = True
    return RealTokenizer(text, Vocabulary.from_json(content, eos_ids=[end]), end, backend)
