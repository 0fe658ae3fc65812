"""Check that seeded answers have the same bits, whatever else runs: on the CPU, in bfloat16.

    python -m tests.model.same_bits --answers 1000
    python -m tests.model.same_bits --answers 100 --quantize int4 --model FOLDER

Every answer is first drawn alone: its prompt in one chunk, no drafts, an empty cache. Then it is
drawn among others, in engines with random limits: chunks of any size, drafts on or off, prompts
cached or not, and caches so small that answers are preempted. The comparison covers the tokens and,
for each draw, every bit of its row of logits. Exit status: 0 if none differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from app.constraint import Compiler, JsonSchema
from app.constraint.compiler import read_document
from app.core.constraint import Constraint
from app.core.request import EngineRequest, SamplingParams
from app.core.step import Draw
from app.engine import Engine, EngineConfig
from app.model.composition import load_runner
from app.model.config import ModelConfig
from app.model.runner import TorchRunner
from app.model.sampling import Sampler
from tests.engine.harness import LANGUAGES, TOKENIZER, VOCABULARY, Recorder, drain, request, varied
from tests.model.tiny import save_kind

BLOCK_SIZE = 4
TOGETHER = 40
"""Maximum number of requests in one engine."""
SHAPE = {
    "vocab_size": VOCABULARY.size,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "initializer_range": 0.1,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": VOCABULARY.eos,
}


class _RecordingSampler:
    """A sampler that records the bits of logits, as hashes by the key of their draw."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.rows: dict[int, set[bytes]] = {}
        """A draw has several if a draft writes the same text with other tokens."""

    def sample(self, logits: Tensor, draws: Sequence[Draw | None]) -> Any:
        for row, draw in zip(logits.contiguous().view(torch.uint8), draws, strict=True):
            if draw is not None:
                bits = blake2b(row.numpy().tobytes(), digest_size=16).digest()
                self.rows.setdefault(draw.key, set()).add(bits)
        return self._sampler.sample(logits, draws)

    def warm_up(self, dtype: torch.dtype) -> None:
        self._sampler.warm_up(dtype)


@dataclass
class Outcome:
    """Counts of a comparison."""

    answers: int = 0
    differ: int = 0
    """Answers with other tokens, or drawn from other bits of logits."""
    rows: int = 0
    """Rows of logits compared."""
    drafted: int = 0
    leapt: int = 0
    cached: int = 0
    put_back: int = 0


def make_runner(folder: Path, quantize: str | None = None, **shape: Any) -> TorchRunner:
    """A tiny Llama with random weights."""
    return load(save_kind(folder, "LlamaConfig", **(SHAPE | shape)), quantize)


def load(model: str, quantize: str | None = None) -> TorchRunner:
    return load_runner(
        ModelConfig(
            model=model,
            random_weights=True,
            vocab_size=VOCABULARY.size,
            device="cpu",
            dtype="bfloat16",
            quantize=quantize,  # type: ignore[arg-type]
            block_size=BLOCK_SIZE,
            kv_cache_bytes=1 << 28,
            max_running=16,
            max_model_len=2048,
        )
    )


def schemas() -> list[Constraint]:
    """Constraints of schemas with enums, quotes from a document, and unique items."""
    compiler = Compiler(VOCABULARY)
    bools, words = {"type": "boolean"}, {"enum": ["ab", "abab", "name", "nana", 1, 12]}
    quotes = {"type": "array", "items": {"type": "string", "x-verbatim": True}, "maxItems": 3}
    differing = {"type": "array", "items": {"type": "string", "maxLength": 9}, "uniqueItems": True}
    found: list[Constraint] = []
    for one, other in ((words, quotes), (differing, words), (bools, {**differing, "maxItems": 4})):
        schema = {"type": "object", "properties": {"a": one, "b": other}, "required": ["a", "b"]}
        compiled = compiler.compile(JsonSchema(schema, close_objects=True))
        texts = {hole.source: ["name me abab or nana; ab 12"] for hole in compiled.holes}
        documents = {each: read_document(texts[each], each.words) for each in texts}
        found.append(compiled.bind(documents) if documents else compiled)
    return found


def make_requests(
    dice: random.Random, count: int, longest: int, constraints: Sequence[Constraint]
) -> list[EngineRequest]:
    shared = [bytes(dice.choices(b"abnme{1 ", k=longest)).decode() for _ in range(3)]
    requests = []
    for number in range(count):
        start = dice.choice(shared)[: dice.choice([0, dice.randint(1, longest), longest])]
        own = "".join(dice.choice("abnme{1 ") for _ in range(dice.randint(1, 40)))
        allowed = dice.choice([*constraints, *[None] * (len(constraints) // 2)])
        least = 1 if allowed is None else allowed.start().shortest_tokens()
        sampling = SamplingParams(temperature=dice.choice([0.0, 0.7, 1.0, 1.0]))
        asked = request(
            f"r{number}",
            start + own,
            allowed=allowed,
            max_tokens=least + dice.choice([3, 10, 30, 90]),
            sampling=sampling,
            seed=dice.getrandbits(40),
            leap=dice.random() < 0.7,
        )
        requests.append(asked)
    return requests


def compare(
    runner: TorchRunner,
    answers: int,
    *,
    number: int = 0,
    longest: int = 300,
    constraints: Sequence[Constraint] = LANGUAGES,
    report: bool = False,
) -> Outcome:
    """Compare answers to random prompts of up to ``longest`` + 40 tokens; ``number`` is the seed.

    Some answers are unconstrained; each of the others has one of ``constraints``.
    """
    dice, outcome = random.Random(number), Outcome()
    heard = _RecordingSampler(runner._sampler)
    runner._sampler = heard
    groups = runner.cache_groups
    blocks_each = -(-(longest + 200) // BLOCK_SIZE)
    try:
        while outcome.answers < answers:
            asked = make_requests(
                dice, min(TOGETHER, answers - outcome.answers), longest, constraints
            )
            alone: dict[str, tuple[list[int], dict[int, set[bytes]]]] = {}
            for one in asked:
                plain = varied(one, draft=False)
                heard.rows = {}
                config = EngineConfig(
                    max_batch_tokens=2048, max_prefill_tokens=2048, share_prefixes=False
                )
                engine = Engine(runner, VOCABULARY, TOKENIZER, config, None)
                engine.add(plain)
                alone[one.request_id] = (drain(engine)[one.request_id].tokens, heard.rows)
            recorder = Recorder()
            enough = dice.choice([blocks_each + 1, blocks_each + 1, 2 * blocks_each, 1000])
            fewer = [replace(group, num_blocks=min(enough, group.num_blocks)) for group in groups]
            runner.cache_groups = tuple(fewer)
            engine = Engine(runner, VOCABULARY, TOKENIZER, _random_config(dice), recorder)
            heard.rows = {}
            waiting = [varied(one, draft=dice.random() < 0.7) for one in asked]
            found: dict[str, list[int]] = {}
            while waiting or engine.has_work:
                if waiting and dice.random() < 0.9:
                    engine.add(waiting.pop())
                live = dict(engine._sequences)
                for output in engine.step():
                    for chunk in output.chunks:
                        sequence = live[chunk.request_id]
                        found[chunk.request_id] = sequence.tokens[sequence.answer_start :]
            runner.cache_groups = groups
            _count(outcome, alone, found, heard.rows)
            outcome.drafted += sum(stats.drafted_tokens for stats in recorder.steps)
            outcome.leapt += sum(stats.leapt_tokens for stats in recorder.steps)
            outcome.cached += sum(stats.cached_tokens for stats in recorder.steps)
            outcome.put_back += sum(stats.preemptions for stats in recorder.steps)
            if report:
                print(outcome, flush=True)
    finally:
        runner.cache_groups = groups
        runner._sampler = heard._sampler
    return outcome


def _random_config(dice: random.Random) -> EngineConfig:
    running = dice.choice([2, 5, 16, 16])
    return EngineConfig(
        max_batch_tokens=running + dice.choice([0, 3, 60, 500]),
        max_running=running,
        max_prefill_tokens=dice.choice([1, 5, 17, 64, 300]),
        spare_tokens=dice.choice([1, 16, 1000]),
        small_gap_tokens=dice.choice([1, 32]),
        max_draft_tokens=dice.choice([1, 4, 16]),
        share_prefixes=dice.random() < 0.8,
    )


def _count(
    outcome: Outcome,
    alone: dict[str, tuple[list[int], dict[int, set[bytes]]]],
    found: dict[str, list[int]],
    rows: dict[int, set[bytes]],
) -> None:
    for name, (tokens, own) in alone.items():
        both = own.keys() & rows.keys()
        outcome.answers += 1
        outcome.rows += len(both)
        outcome.differ += found[name] != tokens or any(not own[key] <= rows[key] for key in both)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--model", help="model folder; default: a tiny random Llama")
    parser.add_argument("--quantize", choices=["int8", "int4"])
    parser.add_argument("--longest", type=int, default=300, help="maximum tokens of a prefix")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runner = (
            load(given.model, given.quantize)
            if given.model
            else make_runner(Path(folder), given.quantize)
        )
        outcome = compare(
            runner, given.answers, number=given.seed, longest=given.longest, report=True
        )
    print(f"{outcome.differ} of {outcome.answers} answers differ; {outcome.rows} rows of logits")
    return int(outcome.differ > 0)


if __name__ == "__main__":
    sys.exit(main())
