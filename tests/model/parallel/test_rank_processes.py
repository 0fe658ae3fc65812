"""Two processes that share a model, over gloo: their answers, and the loss of one."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from app.constraint import Choice, Compiler, JsonObject, JsonSchema, Regex
from app.constraint.constraint import CompiledConstraint
from app.core.errors import DeviceFailed
from app.engine import Engine, EngineConfig
from app.model.checkpoints.loading import read_config
from app.model.composition import load_runner
from app.model.layers.architecture import layer_count
from app.model.runner import TorchRunner
from tests.e2e.schemas import random_schema
from tests.e2e.test_exactness import random_requests
from tests.engine.harness import TOKENIZER, VOCABULARY, Recorder, answers_of, drain, request
from tests.model.hybrid import lively_model
from tests.model.parallel.processes import ranks_alive
from tests.model.tiny import runner_config, save_config

SHAPE = {"vocab_size": VOCABULARY.size, "max_position_embeddings": 1024}
RECURRENT = "qwen3_5_text"
SMALL_STATES = {
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
}
KINDS = ("qwen3", "gemma3 with a window", RECURRENT, "llama")
TOKENS = 160
"""Tokens in the cache: so few that answers are preempted."""


def load(folder: str, ranks: int) -> TorchRunner:
    settings = read_config(folder)
    size = TOKENS * layer_count(settings) * 2 * 2 * 8 * 4 // ranks
    if settings.model_type == RECURRENT:
        size = 100_000 // ranks
    return load_runner(
        runner_config(
            folder,
            kv_cache_bytes=size,
            random_weights=settings.model_type != RECURRENT,
            vocab_size=VOCABULARY.size,
            tensor_parallel=ranks,
        )
    )


@pytest.fixture(scope="module")
def constraints() -> list[CompiledConstraint]:
    compiler = Compiler(VOCABULARY)
    rng = random.Random(1)
    return [
        *[compiler.compile(JsonSchema(random_schema(rng))) for _ in range(6)],
        compiler.compile(JsonObject()),
        compiler.compile(Regex("(name|na){1,3}[0-9]{2}")),
        compiler.compile(Choice(["name", "names", "no"])),
    ]


@pytest.fixture(scope="module", params=KINDS)
def folder(request: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    if request.param != RECURRENT:
        return save_config(folder, request.param, **SHAPE)
    lively_model(RECURRENT, **SHAPE, **SMALL_STATES).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def shared(folder: str) -> Iterator[TorchRunner]:
    runner = load(folder, 2)
    yield runner
    runner.close()
    assert not ranks_alive()


def test_two_processes_answer_token_for_token_as_one(
    folder: str, shared: TorchRunner, constraints: list[CompiledConstraint]
) -> None:
    alone = load(folder, 1)
    if alone.states is None:
        assert shared.cache_groups == alone.cache_groups
    config = EngineConfig(max_batch_tokens=60, max_running=8, max_prefill_tokens=16)
    seen, observers = [], [Recorder(), Recorder()]
    for runner, observer in zip((alone, shared), observers, strict=True):
        engine = Engine(runner, VOCABULARY, TOKENIZER, config, observer)
        requests = random_requests(random.Random(3), constraints, 16)
        fitting = [
            each
            for each in requests
            if len(each.prompt) + each.max_tokens <= engine.max_sequence_tokens
        ]
        assert len(fitting) > 7
        seen.append(answers_of(engine, fitting))
    assert {name: answer.tokens for name, answer in seen[0].items()} == {
        name: answer.tokens for name, answer in seen[1].items()
    }
    used = [answer.usage for answer in seen[1].values() if answer.usage is not None]
    assert sum(usage.leapt_tokens for usage in used) > 0
    assert sum(usage.drafted_tokens for usage in used) > 0
    assert sum(stats.preemptions for stats in observers[1].steps) > 0


def test_a_rank_that_is_killed_fails_the_step_and_is_named(
    folder: str, shared: TorchRunner
) -> None:
    if read_config(folder).model_type != "llama":
        return  # one kind is enough: the last, as no test follows
    engine = Engine(shared, VOCABULARY, TOKENIZER, EngineConfig())
    reasons: list[str] = []
    lost = threading.Event()

    def on_loss(why: str) -> None:
        reasons.append(why)
        lost.set()

    shared.watch(on_loss)
    (rank,) = ranks_alive()
    os.kill(rank, signal.SIGKILL)
    assert lost.wait(300)
    assert reasons == ["rank 1 of 2: it was killed by SIGKILL"]
    engine.add(request("r", "say: "))
    with pytest.raises(DeviceFailed, match="rank 1 of 2: it was killed by SIGKILL"):
        drain(engine)
