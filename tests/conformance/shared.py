"""The data beside the checkout: where it is and how it is read."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from app.text import Vocabulary

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
MASKBENCH = DATA / "maskbench" / "dev.jsonl.gz"
SUITE = DATA / "json-schema-test-suite" / "tests"
PROBES = DATA / "keyword_probes.json"
TOKENIZERS = ("gpt2", "llama3_2", "qwen2_5")

_ENDS = {"gpt2": "<|endoftext|>", "llama3_2": "<|end_of_text|>", "qwen2_5": "<|endoftext|>"}

Case = dict[str, Any]
"""One line of MaskBench: ``id``, ``schema`` and ``tests``, each with ``data`` and ``valid``."""


def maskbench(path: Path = MASKBENCH, count: int | None = None, seed: int = 0) -> list[Case]:
    """The cases of MaskBench in their order, or ``count`` of them drawn by ``seed``."""
    with gzip.open(path, "rt") as lines:
        cases = [json.loads(line) for line in lines]
    if count is None or count >= len(cases):
        return cases
    chosen = random.Random(seed).sample(range(len(cases)), count)
    return [cases[place] for place in sorted(chosen)]


@dataclass(frozen=True, slots=True)
class SharedTokenizer:
    """One of ``TOKENIZERS``, as each library wants it."""

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
def tokenizer(name: str) -> SharedTokenizer:
    """A tokenizer by name. Raises ``FileNotFoundError`` where the data is not there."""
    packed = (DATA / "tokenizers" / name / "tokenizer.json.gz").read_bytes()
    text = gzip.decompress(packed).decode()
    content = json.loads(text)
    end = next(t["id"] for t in content["added_tokens"] if t["content"] == _ENDS[name])
    backend = Tokenizer.from_str(text)
    backend.encode_special_tokens = True
    return SharedTokenizer(text, Vocabulary.from_json(content, eos_ids=[end]), end, backend)


def dumps(value: Any) -> str:
    """``value`` in the form answers have."""
    return json.dumps(value, ensure_ascii=False)
