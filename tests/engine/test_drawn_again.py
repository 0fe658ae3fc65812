"""Unique items and names: a draw that repeats an earlier one is rejected and drawn again."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.constraint import Compiler, JsonObject, JsonSchema
from app.core.constraint import Constraint
from app.core.request import EngineRequest
from app.engine import EngineConfig
from tests.engine.harness import (
    GREEDY,
    HOT,
    VOCABULARY,
    Recorder,
    answer_of,
    answers_of,
    check_plain,
    make_engine,
    random_config,
    random_layers,
    request,
    varied,
)
from tests.fakes import Logits, ScriptedModel
from tests.wide import many

COMPILER = Compiler(VOCABULARY)


def unique(items: Any, **keywords: Any) -> dict[str, Any]:
    return {"type": "array", "uniqueItems": True, "items": items, **keywords}


def compiled(schema: Any) -> Constraint:
    return COMPILER.compile(JsonSchema(schema))


SHORT = {"type": "string", "pattern": "^[ab]{0,2}$"}
CONSTRAINTS: dict[str, Constraint] = {
    "a ranking": compiled(unique({"type": "integer", "minimum": 1, "maximum": 12}, minItems=12)),
    "many of a list": compiled(unique({"enum": [f"n{i}" for i in range(18)]}, minItems=15)),
    "few strings": compiled(unique(SHORT, minItems=5)),
    "a map": compiled(
        {"type": "object", "propertyNames": SHORT, "additionalProperties": {"enum": [1, 2]}}
    ),
    "so many names": compiled({"type": "object", "propertyNames": SHORT, "minProperties": 4}),
    "maps in a list": compiled(
        unique(
            {"type": "object", "properties": {"a": SHORT}, "additionalProperties": False},
            minItems=5,
        )
    ),
    "any object": COMPILER.compile(JsonObject()),
}


def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(found)) == len(found), found
    return dict(found)


def check(text: bytes) -> None:
    """Check that no name and, in these schemas, no item occurs twice."""
    value = json.loads(text, object_pairs_hook=pairs)
    if isinstance(value, list):
        assert len({json.dumps(each) for each in value}) == len(value), text


def random_request(rng: random.Random, name: str, allowed: Constraint) -> EngineRequest:
    needed = allowed.start().shortest_tokens()
    asked = rng.choice([GREEDY, HOT, HOT, replace(HOT, top_k=3), replace(HOT, frequency_penalty=1)])
    one = request(
        name,
        bytes(rng.choices(b"pq", k=rng.randint(1, 6))),
        allowed=allowed,
        max_tokens=needed + rng.choice([0, 1, 2, 5, 10, 40]),
        sampling=asked,
        seed=rng.randint(0, 5),
        leap=rng.random() < 0.8,
    )
    return varied(one, draft=rng.random() < 0.8)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_any_batching_drafts_and_preemption_give_the_tokens_of_plain_decoding(name: str) -> None:
    again = 0
    for seed in range(6):
        rng = random.Random(seed)
        model = ScriptedModel(VOCABULARY, by_bytes=rng.random() < 0.3)
        requests = [random_request(rng, f"r{i}", CONSTRAINTS[name]) for i in range(4)]
        longest = max(len(one.prompt) + one.max_tokens for one in requests)
        config, block_size = random_config(rng), rng.choice([1, 4, 16])
        groups, states = random_layers(rng, longest, block_size, config.max_batch_tokens)
        recorder = Recorder()
        engine = make_engine(
            config,
            model=model,
            block_size=block_size,
            groups=groups,
            states=states,
            observer=recorder,
        )
        answers = answers_of(engine, requests)
        check_plain(answers, requests, model)
        for answer in answers.values():
            assert answer.finish_reason == "stop"
            check(answer.data)
        again += sum(each.drawn_again for each in recorder.steps)
    assert again > 0 or name == "any object"


def ranking(number: int) -> dict[str, Any]:
    return unique({"type": "integer", "minimum": 1, "maximum": number}, minItems=number)


@pytest.mark.parametrize("room", [1, 50])
@pytest.mark.parametrize(
    "items",
    [ranking(70), ranking(100), unique({"enum": [f"option {n}" for n in range(80)]}, minItems=80)],
    ids=["a ranking of 70", "a ranking of 100", "all 80 of a list"],
)
def test_a_long_ranking_ends_within_its_budget_and_others_go_on_beside_it(
    items: dict[str, Any], room: int
) -> None:
    """Each list is a property of an object, at temperature 1, with 1 or 50 tokens to spare.

    Once, the searches for a mask with and without a budget discarded each other's work for ever,
    and an answer failed after its first tokens.
    """
    allowed = compiled({"type": "object", "properties": {"order": items}, "required": ["order"]})
    budget = allowed.start().shortest_tokens() + room
    one = request(allowed=allowed, sampling=HOT, max_tokens=budget)
    asked = [replace(one, request_id=f"r{seed}", seed=seed) for seed in range(many(6))]
    beside = replace(request(max_tokens=100, sampling=HOT), request_id="beside")
    answers = answers_of(make_engine(), [*asked, beside])
    assert answers.pop("beside").finish_reason == "length"
    for answer in answers.values():
        assert answer.finish_reason == "stop"
        order = json.loads(answer.data)["order"]
        assert len({*order}) == len(order) == items["minItems"]


class Liking(ScriptedModel):
    """Draws tokens by fixed weights, whatever the text before."""

    def __init__(self, weights: dict[str, float]) -> None:
        super().__init__(VOCABULARY)
        self._logits = np.full(VOCABULARY.size, -30.0)
        for text, weight in weights.items():
            self._logits[VOCABULARY.ids[text.encode()]] = np.log(weight)

    def logits(self, tokens: Sequence[int]) -> Logits:
        return self._logits


def test_a_second_draw_has_the_odds_of_a_mask_without_used_values() -> None:
    """Orders of 1 to 4: each number is drawn by its weight among those that are left."""
    weights = {1: 0.4, 2: 0.3, 3: 0.2, 4: 0.1}
    model = Liking({str(number): weight for number, weight in weights.items()} | {",": 1, " ": 1})
    allowed = compiled(unique({"type": "integer", "minimum": 1, "maximum": 4}, minItems=4))
    drawn: Counter[tuple[int, ...]] = Counter()
    count = many(8_000, 20)
    engine = make_engine(model=model)
    one = request(allowed=allowed, sampling=HOT, max_tokens=30)
    for start in range(0, count, 16):
        batch = [replace(one, request_id=f"r{i}", seed=i) for i in range(start, start + 16)]
        for answer in answers_of(engine, batch).values():
            drawn[tuple(json.loads(answer.data))] += 1
    for order, times in drawn.items():
        odds, left = 1.0, 1.0
        for number in order:
            odds *= weights[number] / left
            left -= weights[number]
        spread = (count * odds * (1 - odds)) ** 0.5
        assert abs(times - count * odds) < 4 * spread + 1, (order, times, count * odds)


def test_an_answer_whose_model_wants_a_name_again_goes_on_with_another() -> None:
    model = Liking({'{"': 9, "a": 1, '": ': 5, "1": 1, ",": 2, " ": 1, '"': 3, "b": 0.01})
    recorder = Recorder()
    engine = make_engine(model=model, observer=recorder)
    one = request(allowed=CONSTRAINTS["any object"], sampling=HOT, max_tokens=60, seed=3)
    for seed in range(many(20, 4)):
        answer = answer_of(engine, replace(one, seed=seed))
        assert answer.finish_reason == "stop"
        check(answer.data)
    assert sum(each.drawn_again for each in recorder.steps) > 0


def test_a_rejected_draw_costs_its_answer_at_most_one_pass() -> None:
    allowed = CONSTRAINTS["a ranking"]
    recorder = Recorder()
    model = ScriptedModel(VOCABULARY)
    engine = make_engine(EngineConfig(draft_branches=False), model=model, observer=recorder)
    one = request("one", allowed=allowed, sampling=HOT, max_tokens=60)
    answer = answer_of(engine, one)
    again = sum(each.drawn_again for each in recorder.steps)
    drawn = sum(each.sampled_tokens for each in recorder.steps)
    assert again > 0
    assert answer.usage.forward_passes <= drawn + again + 1
