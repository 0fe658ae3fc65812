"""A seeded answer of the demo model in float32 is the same alone and among 31 others.

Matrix products round differently for one row and for many: the logits differ in their last bits.
The engine and its sampling must hide this difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice

import pytest

from app.constraint import Compiler, JsonSchema
from app.core.request import EngineRequest, GenerationOptions, SamplingParams
from app.demo import MODEL_PATH
from app.engine import Engine
from app.model.checkpoints.loading import eos_token_ids
from app.model.composition import load_runner
from app.model.config import ModelConfig
from app.text import HfTokenizer, Vocabulary
from tests.engine.harness import Answer, answer_of, answers_of, varied
from tools.demo_model.corpus import Example, Kind, examples
from tools.demo_model.tokenizer import conversation

KINDS: tuple[Kind, ...] = ("contact", "city", "event", "review", "talk")
TOGETHER = 32
ASKED_AGAIN = slice(None, None, 7)

SAMPLINGS = {
    "all tokens": SamplingParams(temperature=1.0),
    "the likeliest": SamplingParams(temperature=1.0, top_p=0.95, top_k=200, min_p=0.001),
}


class Demo:
    """Makes engines of the demo model, and requests for them."""

    def __init__(self) -> None:
        folder = str(MODEL_PATH)
        self._tokenizer = HfTokenizer.load(folder)
        self._vocabulary = Vocabulary.from_tokenizer(self._tokenizer.hf, eos_token_ids(folder))
        self._compiler = Compiler(self._vocabulary)
        self._runner = load_runner(
            ModelConfig(
                model=folder,
                dtype="float32",
                device="cpu",
                kv_cache_bytes=1 << 26,
                vocab_size=self._vocabulary.size,
            )
        )

    def new_engine(self) -> Engine:
        return Engine(self._runner, self._vocabulary, self._tokenizer)

    def requests(self, sampling: SamplingParams, first_seed: int) -> list[EngineRequest]:
        """Requests with different prompts and seeds; every other one has a schema."""
        return [
            EngineRequest(
                request_id=f"{example.kind} {index}",
                prompt=tuple(self._tokenizer.encode_prompt(conversation(example)[0])),
                max_tokens=50,
                options=GenerationOptions(sampling=sampling),
                seed=first_seed + index,
                constraint=(
                    self._compiler.compile(JsonSchema(example.schema))
                    if index % 2 == 0 and example.schema is not None
                    else None
                ),
            )
            for index, example in enumerate(islice(_mixed(first_seed), TOGETHER))
        ]


def _mixed(seed: int) -> Iterator[Example]:
    for kind in cycle(KINDS):
        seed += 1
        yield from examples(kind, count=1, seed=seed, split="held_out")


@pytest.fixture(scope="module")
def demo() -> Demo:
    return Demo()


@pytest.mark.parametrize("name", SAMPLINGS)
def test_a_seeded_answer_is_the_same_alone_and_among_31_others(demo: Demo, name: str) -> None:
    requests = demo.requests(SAMPLINGS[name], 1000)
    together = answers_of(demo.new_engine(), requests)
    engine = demo.new_engine()
    for one in requests[ASKED_AGAIN]:
        alone = answer_of(engine, one)
        among_others = together[one.request_id]
        assert alone.data == among_others.data
        assert alone.tokens == among_others.tokens
        assert alone.finish_reason == among_others.finish_reason


def test_a_seeded_answer_is_the_same_with_drafts_and_without(demo: Demo) -> None:
    """Compare answers with drafts, learned from the same requests, to answers without."""
    requests = demo.requests(SAMPLINGS["all tokens"], 2000)
    engine = demo.new_engine()
    plain = answers_of(engine, [varied(one, draft=False) for one in requests])
    answers_of(engine, requests)
    drafted = answers_of(engine, requests)
    for request_id, answer in drafted.items():
        assert answer.data == plain[request_id].data
        assert answer.tokens == plain[request_id].tokens
        assert answer.finish_reason == plain[request_id].finish_reason
    saved = [passes(plain[each]) - passes(drafted[each]) for each in drafted]
    assert sum(saved) > 100


def passes(answer: Answer) -> int:
    assert answer.usage is not None
    return answer.usage.forward_passes
