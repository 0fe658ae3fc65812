"""Effect of quantised weights on a model's predictions, through the kernels that serve it.

Text for the demo model: right answers to held-out questions, each after its prompt. Text for any
other model: a file of this repository, in pieces.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer

from app.core.step import Span
from app.demo import MODEL_PATH
from app.model.composition import load_runner
from app.model.config import ModelConfig, QuantizeName
from app.model.inputs import lay_out
from app.model.runner import TorchRunner
from loadtest.tables import table
from tools.bench.costs.stepping import has_weights
from tools.demo_model.corpus import examples

NAMES: tuple[QuantizeName | None, ...] = (None, "int8", "int4")
COLUMNS = ("weights", "MB", "perplexity", "likeliest token alike", "KL, nats a token", "tokens")
KINDS: tuple[Any, ...] = ("city", "contact", "event", "invoice", "notes", "review")
SEED = 2026
PIECE = 256
"""Tokens of a piece of text."""
TEXT = Path(__file__).parents[3] / "README.md"
BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Passage:
    ids: Sequence[int]
    first: int
    """Index of the first token that counts; those before it are only context."""


def accuracy_table(folder: Path | None, count: int) -> str:
    """Table of ``folder``'s model; of the demo model, with ``count`` passages a kind, if None."""
    passages = demo_passages(count) if folder is None else text_passages(folder, count)
    model = str(folder or MODEL_PATH)
    plain: list[Tensor] = []
    rows: list[Sequence[str]] = []
    for name in NAMES:
        config = ModelConfig(
            model,
            device="cpu",
            dtype="bfloat16",
            quantize=name,
            block_size=BLOCK_SIZE,
            random_weights=not has_weights(Path(model)),
        )
        runner = load_runner(config)
        found = [logprobs(runner, passage) for passage in passages]
        plain = plain or found
        size = sum(runner.description.weight_bytes.values())
        rows.append([name or "bfloat16", f"{size / 1e6:.1f}", *compared(passages, found, plain)])
        del runner
        gc.collect()
    return table(COLUMNS, rows)


def compared(
    passages: Sequence[Passage], found: Sequence[Tensor], plain: Sequence[Tensor]
) -> list[str]:
    lost = alike = divergence = 0.0
    total = 0
    for passage, own, before in zip(passages, found, plain, strict=True):
        right = torch.tensor(passage.ids[passage.first :])
        lost -= float(own.gather(1, right[:, None]).sum())
        alike += float((own.argmax(-1) == before.argmax(-1)).sum())
        divergence += float((before.exp() * (before - own)).sum())
        total += len(right)
    return [
        f"{math.exp(lost / total):.4f}",
        f"{alike / total:.2%}",
        f"{divergence / total:.4f}",
        str(total),
    ]


def logprobs(runner: TorchRunner, passage: Passage) -> Tensor:
    """Log probabilities of the vocabulary at each token that counts: [tokens, V], float32."""
    fed = passage.ids[:-1]
    blocks = range(-(-len(fed) // BLOCK_SIZE))
    offsets = range(passage.first - 1, len(fed))
    plan = [Span(fed, 0, (blocks,), rows=offsets)]
    logits = runner._forward.run(lay_out(plan, BLOCK_SIZE))
    return logits.float().log_softmax(-1)


def demo_passages(count: int) -> list[Passage]:
    tokenizer: Any = AutoTokenizer.from_pretrained(MODEL_PATH)
    found = []
    for kind in KINDS:
        for example in examples(kind, count, SEED, split="held_out"):
            prompt = tokenizer.apply_chat_template(
                list(example.messages), tokenize=False, add_generation_prompt=True
            )
            ids = tokenizer(prompt + example.text + tokenizer.eos_token)["input_ids"]
            found.append(Passage(ids, len(tokenizer(prompt)["input_ids"])))
    return found


def text_passages(folder: Path, count: int) -> list[Passage]:
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXT.read_text())["input_ids"]
    pieces = [ids[start : start + PIECE] for start in range(0, len(ids) - 1, PIECE)]
    return [Passage(piece, 1) for piece in pieces[:count] if len(piece) > 1]
