"""Values quoted from the prompt: the same with and without drafts, in fewer passes."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.constraint import CompiledConstraint
from app.constraint.program import compile_program
from app.constraint.quotes.document import Document
from app.core.request import ChoiceOptions, SamplingParams
from app.core.specs import JsonSchema
from tests.engine.harness import (
    GREEDY,
    VOCABULARY,
    answer_of,
    make_engine,
    passes,
    request,
    varied,
)
from tests.fakes import ScriptedModel

TEXT = 'name me: wxyz abab or ella 12 "lllama"\nnana baba é'
QUOTE = {"type": "string", "x-verbatim": True, "minLength": 4, "maxLength": 30}
INDEX = VocabularyIndex(VOCABULARY)


def quotes(text: str = TEXT) -> CompiledConstraint:
    properties = {"quotes": {"type": "array", "items": QUOTE}, "n": {"enum": [1, 12, "or"]}}
    schema = {"type": "object", "properties": properties, "required": ["quotes", "n"]}
    compiled = CompiledConstraint(compile_program(JsonSchema(schema, close_objects=True)), INDEX)
    return compiled.bind({hole.source: Document([text]) for hole in compiled.holes})


@pytest.mark.parametrize("seed", range(12))
def test_quotes_stand_in_the_text_whatever_is_drafted(seed: int) -> None:
    rng = random.Random(seed)
    allowed = quotes()
    one = request(
        prompt=TEXT,
        allowed=allowed,
        sampling=SamplingParams(temperature=rng.choice([0.0, 1.0])),
        max_tokens=rng.randint(allowed.start().shortest_tokens(), 60),
        seed=seed,
    )
    model = ScriptedModel(VOCABULARY)
    first = answer_of(make_engine(model=model), one)
    engine = make_engine(model=model)
    for again in (one, one, varied(one, draft=False)):
        answer = answer_of(engine, again)
        assert (answer.tokens, answer.finish_reason) == (first.tokens, "stop")
    value = json.loads(first.data)
    assert all(quote in TEXT and 4 <= len(quote) <= 30 for quote in value["quotes"])


def test_a_quote_is_drafted_from_the_place_where_it_stands() -> None:
    text = "".join(random.Random(0).choice("abcdefgh") for _ in range(400))
    schema = {"type": "string", "x-verbatim": True, "minLength": 100}
    compiled = CompiledConstraint(compile_program(JsonSchema(schema)), INDEX)
    (hole,) = compiled.holes
    allowed = compiled.bind({hole.source: Document([text])})
    # Without leaps, which would also follow a text that occurs only once.
    one = request(prompt="quote", allowed=allowed, sampling=GREEDY, max_tokens=120, leap=False)
    drafted = answer_of(make_engine(), one)
    plain = answer_of(make_engine(), varied(one, draft=False))
    assert drafted.tokens == plain.tokens
    assert json.loads(drafted.data) in text
    assert passes(drafted) * 4 < passes(plain)


@pytest.mark.parametrize("exact", [False, True])
def test_choices_beside_quotes_are_scored(exact: bool) -> None:
    one = request(prompt=TEXT, allowed=quotes(), max_tokens=60)
    one = replace(one, choices=ChoiceOptions(report=True, exact=exact))
    answer = answer_of(make_engine(), one)
    value = json.loads(answer.data)
    assert all(quote in TEXT for quote in value["quotes"])
    assert value["n"] in (1, 12, "or")
