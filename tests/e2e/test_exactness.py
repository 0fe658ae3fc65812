"""The real constraint core, engine and runner together in float32, compared to plain loops."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import jsonschema
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from app.constraint import Choice, Compiler, JsonObject, JsonSchema, Regex
from app.constraint.constraint import CompiledConstraint
from app.core.events import AnswerToken
from app.core.request import EngineRequest, SamplingParams
from app.engine import Engine, EngineConfig
from app.model.composition import load_runner
from tests.e2e.schemas import random_schema
from tests.engine.harness import (
    GREEDY,
    TOKENIZER,
    VOCABULARY,
    answers_of,
    random_config,
    request,
    varied,
)
from tests.engine.naive import naive_answer
from tests.fakes import ScriptedModel
from tests.model.tiny import eager_model, runner_config, save_config
from tests.wide import many

SHAPE = {"vocab_size": VOCABULARY.size, "max_position_embeddings": 1024}


class EagerModel(ScriptedModel):
    """A transformers model that computes the whole text in each step: no cache, one sequence."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(VOCABULARY)
        self._model = model

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits
        row: NDArray[np.float64] = logits[0, -1, : VOCABULARY.size].double().numpy()
        return row


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_config(tmp_path_factory.mktemp("llama"), "llama", **SHAPE)


@pytest.fixture(scope="module")
def constraints() -> list[CompiledConstraint]:
    compiler = Compiler(VOCABULARY)
    rng = random.Random(1)
    specs = [JsonSchema(random_schema(rng)) for _ in range(14)]
    return [
        *map(compiler.compile, specs),
        compiler.compile(JsonObject()),
        compiler.compile(Regex("(name|na){1,3}[0-9]{2}")),
        compiler.compile(Choice(["name", "names", "no"])),
    ]


def engine_of(folder: str, config: EngineConfig, *, blocks: int, block_size: int = 4) -> Engine:
    bytes_per_block = block_size * 2 * 2 * 2 * 8 * 4  # K and V, layers, heads, width, float32
    runner = load_runner(
        runner_config(
            folder,
            block_size=block_size,
            kv_cache_bytes=blocks * bytes_per_block,
            vocab_size=VOCABULARY.size,
        )
    )
    return Engine(runner, VOCABULARY, TOKENIZER, config)


def random_requests(
    rng: random.Random, constraints: Sequence[CompiledConstraint], count: int
) -> list[EngineRequest]:
    prompts = ["the same opening, ", "the same opening, and then ", "another one: "]
    requests = []
    for index in range(count):
        allowed = rng.choice([*constraints, None])
        shortest = allowed.start().shortest_tokens() if allowed is not None else 5
        requests.append(
            request(
                f"r{index}",
                rng.choice(prompts) + "ab" * rng.randint(0, 6),
                allowed=allowed,
                max_tokens=shortest + rng.choice([0, 2, 10, 40]),
                sampling=GREEDY,
                leap=rng.random() < 0.8,
            )
        )
    return requests


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_greedy_answers_equal_a_plain_loop_token_for_token(
    seed: int, overlap: bool, folder: str, constraints: list[CompiledConstraint]
) -> None:
    rng = random.Random(seed)
    config = replace(random_config(rng), overlap=overlap)
    blocks = rng.choice([60, 90, 400])
    engine = engine_of(folder, config, blocks=blocks)
    requests = [
        one
        for one in random_requests(rng, constraints, 14)
        if len(one.prompt) + one.max_tokens <= engine.max_sequence_tokens
    ]
    answers = answers_of(engine, requests)
    model = EagerModel(eager_model(folder))
    for one in requests:
        expected = naive_answer(one, model, VOCABULARY, TOKENIZER, leap=config.leap)
        answer = answers[one.request_id]
        assert answer.data == expected.text
        assert answer.tokens == expected.tokens
        assert answer.finish_reason == expected.finish_reason


def test_a_seeded_answer_does_not_depend_on_other_requests(
    folder: str, constraints: list[CompiledConstraint]
) -> None:
    rng = random.Random(5)
    sampling = SamplingParams(temperature=1.0, top_p=0.95)
    requests = [
        varied(one, sampling=sampling, seed=index)
        for index, one in enumerate(random_requests(rng, constraints, 24))
    ]
    together = answers_of(engine_of(folder, EngineConfig(), blocks=4000), requests)
    tight = EngineConfig(max_batch_tokens=32, max_running=4, max_prefill_tokens=5)
    apart = answers_of(engine_of(folder, tight, blocks=120), requests)
    ahead = EngineConfig(overlap=True, pipelined_answers=4)
    overlapped = answers_of(engine_of(folder, ahead, blocks=4000), requests)
    for name, answer in together.items():
        assert answer.data == apart[name].data == overlapped[name].data
        assert answer.tokens == apart[name].tokens == overlapped[name].tokens


def test_hundreds_of_random_answers_are_all_valid(folder: str) -> None:
    rng = random.Random(7)
    compiler = Compiler(VOCABULARY)
    schemas = [random_schema(rng) for _ in range(many(125))]
    compiled = [compiler.compile(JsonSchema(schema)) for schema in schemas]
    engine = engine_of(folder, EngineConfig(max_running=16), blocks=16 * 70, block_size=16)
    requests = []
    for index in range(many(500)):
        allowed = compiled[index % len(compiled)]
        requests.append(
            request(
                str(index),
                f"fill in number {rng.randrange(1000)}: ",
                allowed=allowed,
                max_tokens=allowed.start().shortest_tokens() + rng.randint(0, 120),
                sampling=SamplingParams(temperature=1.0),
                seed=index,
            )
        )
    answers = answers_of(engine, requests)
    assert len(answers) == many(500)
    for name, answer in answers.items():
        assert answer.finish_reason == "stop"
        jsonschema.validate(
            json.loads(answer.data),
            schemas[int(name) % len(schemas)],
            format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
        )


@pytest.mark.parametrize("overlap", [False, True])
def test_the_log_probabilities_of_prompt_tokens_are_those_of_transformers(
    folder: str, overlap: bool
) -> None:
    config = EngineConfig(overlap=overlap, max_running=4, max_batch_tokens=40, small_gap_tokens=7)
    engine = engine_of(folder, config, blocks=400)
    prompts = ['say: {"name": "ab"}', "the same opening, and then " * 3, "x"]
    asked = [
        varied(request(str(index), prompt, max_tokens=3), prompt_logprobs=index)
        for index, prompt in enumerate(prompts)
    ]
    told: dict[str, Sequence[AnswerToken]] = {}
    for one in asked:
        engine.add(one)
    while engine.has_work:
        for output in engine.step():
            for chunk in output.chunks:
                told.setdefault(chunk.request_id, chunk.prompt)
    model = EagerModel(eager_model(folder))
    for one in asked:
        tokens = told[one.request_id]
        assert [token.token_id for token in tokens] == list(one.prompt)
        for position, token in enumerate(tokens[1:], start=1):
            logits = model.logits(one.prompt[:position])
            logprobs = logits - np.logaddexp.reduce(logits)
            assert token.logprob == pytest.approx(logprobs[token.token_id], abs=1e-4)
            best = np.sort(logprobs)[::-1][: len(token.top)]
            assert [each.logprob for each in token.top] == pytest.approx(best, abs=1e-4)
