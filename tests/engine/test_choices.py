"""Choices are scored as whole texts and, on request, drawn as whole texts."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from app.constraint import Compiler, JsonSchema
from app.core.cache import StateSlots
from app.core.choices import ScoredChoice
from app.core.constraint import Constraint
from app.core.json_scan import Place
from app.core.request import ChoiceOptions, EngineRequest, SamplingParams
from app.core.specs import Choice, Regex
from app.engine import Engine, EngineConfig
from tests.engine import choice_oracle, harness
from tests.engine.harness import VOCABULARY, make_engine, request, varied
from tests.fakes import Logits, ScriptedModel
from tests.integrity import check_engine
from tests.wide import many

REPORT = ChoiceOptions(report=True)
EXACT = ChoiceOptions(exact=True)
BOTH = ChoiceOptions(report=True, exact=True)

COMPILER = Compiler(VOCABULARY)


def compiled(schema: Any) -> Constraint:
    return COMPILER.compile(JsonSchema(schema, close_objects=True))


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": ["string", "null"], "maxLength": 3},
        "me": {"enum": ["ab", "abab", "or", 1, 12]},
        "tags": {"type": "array", "items": {"enum": ["na", "nana"]}, "maxItems": 2},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "me"],
}


def asked(
    allowed: Constraint, options: ChoiceOptions, *, seed: int = 0, max_tokens: int = 80, **more: Any
) -> EngineRequest:
    sampling = more.pop("sampling", SamplingParams())
    one = request(f"r{seed}", allowed=allowed, max_tokens=max_tokens, sampling=sampling, seed=seed)
    return varied(one, choices=options, **more)


def run(
    engine: Engine, requests: Sequence[EngineRequest]
) -> dict[str, tuple[bytes, list[ScoredChoice]]]:
    """The answer and the scored choices of each request."""
    for each in requests:
        engine.add(each)
    texts = {each.request_id: b"" for each in requests}
    choices: dict[str, list[ScoredChoice]] = {each.request_id: [] for each in requests}
    for _ in range(20_000):
        if not engine.has_work:
            break
        for chunk in harness.step(engine):
            texts[chunk.request_id] += chunk.data
            choices[chunk.request_id] += chunk.choices
            assert chunk.finish_reason in (None, "stop"), chunk
        check_engine(engine)
    assert not engine.has_work
    assert engine.kv_usage == engine.state_usage == 0.0
    return {name: (texts[name], choices[name]) for name in texts}


@pytest.mark.parametrize("seed", range(40))
def test_scores_are_those_of_enumeration(seed: int) -> None:
    choice_oracle.check_random(seed)


@pytest.mark.parametrize("seed", range(20))
def test_scores_of_texts_are_those_of_enumeration(seed: int) -> None:
    assert choice_oracle.check_random_texts(seed) == 1


def test_reporting_changes_no_answer() -> None:
    allowed = compiled(PERSON)
    plain = [replace(asked(allowed, REPORT, seed=seed), choices=None) for seed in range(12)]
    reported = [asked(allowed, REPORT, seed=seed) for seed in range(12)]
    before, after = run(make_engine(), plain), run(make_engine(), reported)
    assert [before[name][0] for name in before] == [after[name][0] for name in before]
    assert all(choices for _, choices in after.values())
    assert not any(choices for _, choices in before.values())


def test_a_choice_is_reported_where_its_answer_is_forced_to_the_end() -> None:
    _, choices = run(make_engine(), [asked(compiled({"const": "ab"}), REPORT)])["r0"]
    assert [[each.way.text for each in choice.ways] for choice in choices] == [[b'"ab"']]
    assert choices[0].ways[0].logprob < 0


class _Liking(ScriptedModel):
    """Gives each text of ``shares`` its probability, byte by byte, and almost none to others."""

    def __init__(self, shares: dict[bytes, float]) -> None:
        super().__init__(VOCABULARY)
        self._shares = shares
        self._after = cache(self._logits_after)

    def logits(self, tokens: Sequence[int]) -> Logits:
        text = VOCABULARY.spell(tokens)
        return self._after(text[max(text.rfind(b'":') + 2, text.rfind(b"say: ") + 5) :])

    def _logits_after(self, spelled: bytes) -> Logits:
        weights = np.full(VOCABULARY.size, 1e-9)
        for whole, share in self._shares.items():
            if whole.startswith(spelled) and len(whole) > len(spelled):
                weights[whole[len(spelled)]] += share
        result: Logits = np.log(weights / weights.sum())
        return result


LIKED = {b' "Half-blood"}': 0.7, b' "Goblin"}': 0.2, b' "Pure-blood"}': 0.1}
STATUS = an_object(status={"enum": ["Half-giant", "Half-elf", "Goblin", "Pure-blood"]})


def shares_of(options: ChoiceOptions | None, temperature: float, count: int = 120) -> Counter[str]:
    allowed = compiled(STATUS)
    requests = [
        replace(
            asked(allowed, REPORT, seed=seed, sampling=SamplingParams(temperature=temperature)),
            choices=options,
        )
        for seed in range(count)
    ]
    answers = run(make_engine(model=_Liking(LIKED), num_blocks=1000), requests)
    return Counter(json.loads(text)["status"] for text, _ in answers.values())


def test_an_exact_choice_has_no_bias_towards_shared_beginnings() -> None:
    token_by_token, exact = shares_of(None, 1.0), shares_of(EXACT, 1.0)
    half = token_by_token["Half-giant"] + token_by_token["Half-elf"]
    assert half > 72, "masks give the share of Half-blood to other values"
    assert exact["Half-giant"] == exact["Half-elf"] == 0
    assert abs(exact["Goblin"] - 80) < 18


def test_texts_that_are_no_json_are_drawn_as_wholes_too() -> None:
    allowed = COMPILER.compile(Choice(("Half-giant", "Half-elf", "Goblin", "Goblins")))
    liked = _Liking({b"Half-blood": 0.7, b"Goblin.": 0.3})
    options = ChoiceOptions(report=True, exact=True, is_text=True)
    answers = run(
        make_engine(model=liked, num_blocks=1000),
        [asked(allowed, options, seed=seed) for seed in range(8)],
    )
    assert {text for text, _ in answers.values()} == {b"Goblin"}
    (choice,) = answers["r0"][1]
    told = {each.way.text: math.exp(each.logprob) for each in choice.ways}
    assert told == pytest.approx(
        {b"Half-giant": 0, b"Half-elf": 0, b"Goblin": 0.3, b"Goblins": 0}, abs=1e-5
    )


SET = {
    "type": "array",
    "items": {"anyOf": [{"enum": ["a", "ab", "b"]}, {"type": "integer"}]},
    "uniqueItems": True,
    "minItems": 3,
    "maxItems": 3,
}


def test_items_that_differ_are_drawn_from_those_that_are_left() -> None:
    allowed = compiled(an_object(tags=SET, ok={"type": "boolean"}))
    for seed in range(many(10, 3)):
        text, choices = run(make_engine(), [asked(allowed, BOTH, seed=seed)])[f"r{seed}"]
        tags = json.loads(text)["tags"]
        assert len(set(tags)) == 3
        values = [each for each in choices if each.place is Place.VALUE][:3]
        assert not any(each.by_tokens for each in choices)
        for number, choice in enumerate(values):
            said = {json.dumps(tag).encode() for tag in tags[:number]}
            words = {each.way.text for each in choice.ways if each.way.kind == "value"}
            assert words == {b'"a"', b'"ab"', b'"b"'} - said


@pytest.mark.parametrize("items", [{"enum": ["n", "no", "y"]}, {"enum": ["n", "no", "y", 1.0]}])
@pytest.mark.parametrize("more", [{}, {"prefixItems": [{"type": ["integer", "string"]}]}])
def test_a_list_whose_items_differ_may_ask_for_exact_choices(
    items: dict[str, Any], more: dict[str, Any]
) -> None:
    unique = {"type": "array", "uniqueItems": True, "minItems": 3, "maxItems": 3, **more}
    allowed = compiled({**unique, "items": {**items, "x-choice": "exact"}})
    model = _Liking({b'"n"': 0.1, b'"no"': 0.3, b'"y"': 0.4, b"1": 0.1, b"5": 0.1})
    requests = [asked(allowed, REPORT, seed=seed) for seed in range(8)]
    for text, choices in run(make_engine(model=model, num_blocks=1000), requests).values():
        assert len({*map(str, json.loads(text))}) == 3
        found = [each for each in choices if each.place is Place.VALUE]
        assert found
        assert not any(each.by_tokens for each in found)


def test_choices_of_maps_are_drawn_as_wholes() -> None:
    kinds = {"enum": ["a", "ab", "b"], "x-choice": "exact"}
    allowed = compiled({"type": "object", "minProperties": 3, "additionalProperties": kinds})
    for seed in range(many(6, 2)):
        one = asked(allowed, ChoiceOptions(report=True), seed=seed)
        text, choices = run(make_engine(), [one])[f"r{seed}"]
        pairs = json.loads(text, object_pairs_hook=list)
        assert len({name for name, _ in pairs}) == len(pairs) >= 3
        values = [each for each in choices if each.place is Place.VALUE]
        assert len(values) == len(pairs) + 1 or len(values) == len(pairs)
        assert not any(each.by_tokens for each in values)


def test_texts_that_are_too_many_to_list_say_so() -> None:
    allowed = COMPILER.compile(Regex("[ab]{9}"))
    options = ChoiceOptions(exact=True, is_text=True)
    _, choices = run(make_engine(), [asked(allowed, options)])["r0"]
    assert [(each.place, each.by_tokens) for each in choices] == [(Place.TEXT, True)]
    options = ChoiceOptions(report=True, is_text=True)
    assert run(make_engine(), [asked(allowed, options)])["r0"][1] == []


def test_the_temperature_is_that_of_whole_values() -> None:
    assert shares_of(EXACT, 0.0, 20) == {"Goblin": 20}
    warm = shares_of(EXACT, 2.0)  # in the ratio of the square roots of 2 and 1
    assert abs(warm["Goblin"] - 120 * math.sqrt(2) / (1 + math.sqrt(2))) < 18


def test_mass_is_what_the_model_gave_to_all_values_together() -> None:
    model = _Liking({b'"Half-blood"': 0.7, b'"Goblin"': 0.2, b'"Pure-blood"': 0.1})
    allowed = compiled(STATUS["properties"]["status"])
    _, (choice,) = run(make_engine(model=model), [asked(allowed, BOTH)])["r0"]
    found = {each.way.text: math.exp(each.logprob) for each in choice.ways}
    expected = {b'"Half-giant"': 0, b'"Half-elf"': 0, b'"Goblin"': 0.2, b'"Pure-blood"': 0.1}
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_value_that_does_not_fit_the_budget_is_not_chosen() -> None:
    allowed = compiled(an_object(a={"enum": ["n", "a much longer value than the other one"]}))
    shortest = allowed.start().shortest_tokens()
    for seed in range(20):
        one = asked(allowed, EXACT, seed=seed, max_tokens=shortest)
        text, _ = run(make_engine(), [one])[f"r{seed}"]
        assert json.loads(text) == {"a": "n"}


def test_another_item_is_only_drawn_if_one_that_differs_fits_the_budget() -> None:
    texts = [{"enum": ["", "ll"]}, {"type": "string", "pattern": "^z", "maxLength": 3}]
    allowed = compiled({"type": "array", "items": {"anyOf": texts}, "uniqueItems": True})
    for seed in range(12):
        text, _ = run(make_engine(), [asked(allowed, EXACT, seed=seed, max_tokens=7)])[f"r{seed}"]
        assert len({*json.loads(text)}) == len(json.loads(text))


@pytest.mark.parametrize("options", [REPORT, EXACT])
def test_a_choice_behind_a_stop_token_in_forced_text_is_not_scored(options: ChoiceOptions) -> None:
    stops = (VOCABULARY.ids[b'": "'],)
    one = asked(compiled(an_object(me={"enum": ["ab", "or"]})), options, stop_token_ids=stops)
    assert run(make_engine(), [one])["r0"] == (b'{"me', [])


@pytest.mark.parametrize("leap", [True, False])
def test_exact_answers_do_not_depend_on_their_company(leap: bool) -> None:
    allowed = [compiled(PERSON), compiled(STATUS), compiled({"enum": [1, 12, 121]})]
    rng = random.Random(5)
    requests = [asked(rng.choice(allowed), BOTH, seed=seed, leap=leap) for seed in range(10)]
    alone = {
        name: answer for each in requests for name, answer in run(make_engine(), [each]).items()
    }
    for seed in range(many(8, 2)):
        rng = random.Random(seed)
        running = rng.choice([1, 3, 16])
        config = EngineConfig(
            pipelined_answers=rng.choice([1, 2, 64]),
            max_batch_tokens=running + rng.choice([31, 60, 300]),
            max_running=running,
            max_prefill_tokens=rng.choice([1, 8, 64]),
            max_draft_tokens=rng.choice([0, 4]),
            share_prefixes=rng.random() < 0.5,
        )
        states = rng.choice([None, StateSlots(40, 8), StateSlots(6, 8)])
        engine = make_engine(config, num_blocks=rng.choice([40, 60, 300]), states=states)
        rng.shuffle(requests)
        assert _texts(run(engine, requests)) == _texts(alone)


def _texts(answers: dict[str, tuple[bytes, list[ScoredChoice]]]) -> dict[str, bytes]:
    return {name: answers[name][0] for name in sorted(answers)}


def test_a_choice_is_scored_after_its_sequence_was_preempted() -> None:
    """It may need more blocks than its known tokens: then it is computed one step later."""
    one = asked(compiled(PERSON), BOTH)
    expected = run(make_engine(block_size=1), [one])["r0"]
    for period in range(3, 8):
        engine, text, choices = make_engine(block_size=1), b"", list[ScoredChoice]()
        engine.add(one)
        for number in range(500):
            scheduler = engine._scheduler
            if number % period == 0 and scheduler.running and engine._flight is None:
                scheduler._put_back(scheduler.running[-1])
            for chunk in harness.step(engine) if engine.has_work else ():
                text += chunk.data
                choices += chunk.choices
            check_engine(engine)
        assert (text, choices) == expected


def test_a_constraint_may_ask_for_an_exact_choice_by_itself() -> None:
    marked = compiled({**STATUS["properties"]["status"], "x-choice": "exact"})
    model = _Liking({b'"Half-blood"': 0.7, b'"Goblin"': 0.2, b'"Pure-blood"': 0.1})
    requests = [asked(marked, ChoiceOptions(), seed=seed) for seed in range(30)]
    answers = run(make_engine(model=model, num_blocks=1000), requests)
    assert {json.loads(text) for text, _ in answers.values()} == {"Goblin", "Pure-blood"}
    assert not any(choices for _, choices in answers.values())


def test_paths_one_after_the_other_score_as_a_tree_does() -> None:
    one = asked(compiled(PERSON), BOTH)
    tree = run(make_engine(), [one])["r0"]
    paths = run(make_engine(states=StateSlots(40, 8)), [one])["r0"]
    assert tree == paths


def test_a_pass_is_never_larger_than_a_small_gap() -> None:
    allowed = compiled({"enum": [f"{i} w" for i in range(40)]})
    config = EngineConfig(small_gap_tokens=12)
    engine = make_engine(config)
    text, (choice,) = run(engine, [asked(allowed, BOTH)])["r0"]
    assert json.loads(text)
    assert len(choice.ways) == 40
    plans = engine._runner.plans  # type: ignore[attr-defined]
    passes = [len(span.tokens) for plan in plans for span in plan if span.tree]
    assert len(passes) > 10
    assert max(passes) <= 12


def test_a_value_of_too_many_is_no_choice() -> None:
    allowed = compiled({"enum": [f"v{i}" for i in range(300)]})
    text, choices = run(make_engine(), [asked(allowed, BOTH)])["r0"]
    assert json.loads(text)
    assert not choices
