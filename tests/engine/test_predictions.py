"""Drafts from a client's prediction save passes, are counted, and never change an answer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.core.request import EngineRequest, SamplingParams
from app.engine import EngineConfig
from app.engine.prediction import Prediction
from tests.engine.harness import (
    GREEDY,
    VOCABULARY,
    Answer,
    answer_of,
    answers_of,
    constraint,
    make_engine,
    plain_answer,
    random_config,
    random_ends,
    random_request,
    request,
    templates,
    varied,
)
from tests.fakes import Logits, ScriptedModel

TEXT = b"The quick brown fox jumps over the lazy dog, and then it says: no more of this"
EAGER = EngineConfig(spare_tokens=64)


class Reciter(ScriptedModel):
    """Mostly continues with ``TEXT`` after the prompt of ``request``."""

    def logits(self, tokens: Sequence[int]) -> Logits:
        logits = super().logits(tokens)
        said = self._vocabulary.spell(tokens).removeprefix(b"say: ")
        if TEXT.startswith(said):
            logits[TEXT[len(said)]] += 14.0
        return logits


MODEL = Reciter(VOCABULARY, by_bytes=True)


def expecting(one: EngineRequest, text: bytes) -> EngineRequest:
    return varied(one, prediction=text)


def spent(answer: Answer) -> tuple[int, int, int]:
    """Forward passes, and accepted and rejected tokens of the prediction."""
    usage = answer.usage
    accepted, rejected = usage.accepted_prediction_tokens, usage.rejected_prediction_tokens
    return usage.forward_passes, accepted, rejected


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_expected_the_tokens_are_those_of_plain_decoding(seed: int) -> None:
    rng = random.Random(seed)
    model = ScriptedModel(VOCABULARY, eos=rng.choice([0.0, 4.0]), by_bytes=rng.random() < 0.5)
    requests: list[EngineRequest] = []
    plain = []
    for index in range(8):
        one = random_request(rng, index)
        if rng.random() < 0.4:
            one = replace(one, constraint=None, thinking=None, choices=None)
        if rng.random() < 0.4:
            one = random_ends(rng, one)
        answer = plain_answer(one, model)
        text = VOCABULARY.spell(answer.tokens)
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice([b"", b"", b"ab", b"\xc3", b"name"]) + text[at:]
        requests.append(expecting(one, text))
        plain.append(answer)
    config = replace(random_config(rng), max_draft_tokens=rng.choice([2, 5, 16]))
    answers = answers_of(make_engine(config, model=model, num_blocks=400), requests)
    for one, known in zip(requests, plain, strict=True):
        assert answers[one.request_id].tokens == known.tokens


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=0.7)])
def test_free_text_that_was_expected_takes_few_passes(sampling: SamplingParams) -> None:
    one = request(sampling=sampling, max_tokens=40)
    plain = answer_of(make_engine(EAGER, model=MODEL), one)
    right = answer_of(make_engine(EAGER, model=MODEL), expecting(one, plain.data))
    assert right.data == plain.data
    passes, accepted, rejected = spent(right)
    assert spent(plain) == (40, 0, 0)
    assert passes < 10
    assert accepted > 30
    assert rejected <= 2


def test_what_was_expected_wrongly_is_counted_and_given_up() -> None:
    one = request(max_tokens=40)
    plain = answer_of(make_engine(EAGER, model=MODEL), one)
    wrong = answer_of(make_engine(EAGER, model=MODEL), expecting(one, b"q" * 200))
    assert wrong.data == plain.data
    passes, accepted, rejected = spent(wrong)
    assert accepted < 3 < rejected
    assert passes >= 40 - accepted


def test_an_answer_that_leaves_its_prediction_is_found_in_it_again() -> None:
    one = request(max_tokens=60)
    plain = answer_of(make_engine(EAGER, model=MODEL), one)
    other = plain.data[:20] + b"<what is not said>" + plain.data[26:]
    passes, accepted, rejected = spent(
        answer_of(make_engine(EAGER, model=MODEL), expecting(one, other))
    )
    assert passes < 35
    assert accepted > 30
    assert rejected >= 1


def test_a_constrained_answer_is_drafted_from_what_is_expected() -> None:
    names = [f"{first}{second}na" for first in "abcde" for second in "nopq"]
    form = constraint(*templates('{"name": "', names, '", "also": "', names, '"}'))
    one = request(allowed=form, max_tokens=60)
    plain = answer_of(make_engine(EAGER, model=MODEL), one)
    right = answer_of(make_engine(EAGER, model=MODEL), expecting(one, plain.data))
    assert right.data == plain.data
    assert spent(right)[0] < spent(plain)[0]
    assert spent(right)[1] > 0


def test_who_wants_no_drafts_has_none_from_a_prediction() -> None:
    one = varied(expecting(request(), b"whatever"), draft=False)
    assert spent(answer_of(make_engine(model=MODEL), one))[1:] == (0, 0)


def test_a_place_is_looked_for_ahead_of_the_last_one_first() -> None:
    text = b"a = begin()\n  end()\nb = begin()\n  end()\nc = begin()\n"
    prediction = Prediction(text)
    assert prediction.rest(b"", begins=True) == text
    assert prediction.rest(b"a = begin()\n  end()\n", begins=True).startswith(b"b = ")
    assert prediction.rest(b"x\nb = begin()\n", begins=False).startswith(b"  end()\nc")
    assert prediction.rest(b"begin()\n  end()\n", begins=False).startswith(b"c = ")
    assert prediction.rest(b"something else", begins=False) == b""
    assert not prediction.found
