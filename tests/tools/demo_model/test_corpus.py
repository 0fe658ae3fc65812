"""The generated examples: valid, repeatable, and split without overlap."""

import json
import random
import re
from itertools import islice
from typing import get_args

import jsonschema
import pytest

from tools.demo_model.corpus import Kind, ToolKind, examples, mixture
from tools.demo_model.kinds import EXTRACTIONS
from tools.demo_model.records import BOOLEAN, INTEGER, STRING, Field, Group, arrange, fields
from tools.demo_model.words import Words, listing, split_of

_KINDS: tuple[Kind, ...] = get_args(Kind)
_TOOL_KINDS: tuple[ToolKind, ...] = get_args(ToolKind)


@pytest.mark.parametrize("kind", [kind for kind in _KINDS if kind not in _TOOL_KINDS])
def test_an_answer_is_valid_against_its_schema_and_written_as_json_dumps_writes_it(
    kind: Kind,
) -> None:
    for example in examples(kind, count=60, seed=3):
        if example.schema is None:
            assert example.answer is None
            assert example.text
            continue
        jsonschema.Draft202012Validator.check_schema(example.schema)
        jsonschema.validate(example.answer, example.schema)
        assert example.text == json.dumps(example.answer, ensure_ascii=False)
        assert list(example.answer or {}) == list(example.schema["properties"])


@pytest.mark.parametrize("kind", _KINDS)
def test_a_conversation_ends_with_the_users_turn(kind: Kind) -> None:
    for example in examples(kind, count=30, seed=4):
        assert example.messages[-1]["role"] == "user"
        assert {turn["role"] for turn in example.messages} <= {"system", "user", "assistant"}


@pytest.mark.parametrize("kind", ["contact", "event", "city"])
def test_a_value_to_extract_stands_in_the_prompt(kind: Kind) -> None:
    for example in examples(kind, count=60, seed=5):
        prompt = example.messages[-1]["content"]
        for value in fields(example.answer).values():
            for part in value if isinstance(value, list) else [value]:
                assert str(part) in prompt or f"{part:,}" in prompt


def test_the_same_seed_gives_the_same_examples_and_another_seed_others() -> None:
    first, again = list(examples("invoice", 20, seed=1)), list(examples("invoice", 20, seed=1))
    assert first == again
    assert first != list(examples("invoice", 20, seed=2))
    assert list(islice(mixture(1), 50)) == list(islice(mixture(1), 50))


def test_no_invented_word_is_in_both_splits() -> None:
    train = Words(random.Random(1), "train")
    held_out = Words(random.Random(1), "held_out")
    seen = {train.word() for _ in range(3000)}
    unseen = {held_out.word() for _ in range(3000)}
    assert not seen & unseen
    assert all(split_of(word) == "train" for word in seen)
    assert split_of("Varo") == split_of("varo")


def test_held_out_people_share_no_surname_with_the_people_trained_on() -> None:
    def surnames(split: str) -> set[str]:
        words = Words(random.Random(2), "train" if split == "train" else "held_out")
        people = (words.person() for _ in range(2000))
        return {part for person in people for part in re.split(r"[ -]", person) if len(part) > 4}

    assert not surnames("train") & surnames("held_out")


def test_every_kind_of_extraction_is_generated_by_the_mixture() -> None:
    kinds = {example.kind for example in islice(mixture(9), 400)}
    assert kinds >= {"character", "talk", "summary", *EXTRACTIONS, *_TOOL_KINDS}


def test_rows_of_an_array_are_laid_out_alike() -> None:
    row = (Field(("name", "item"), STRING, "lamp"), Field(("quantity", "qty"), INTEGER, 2))
    group = Group(("items", "lines"), (row, row, row), many=True)
    for seed in range(30):
        arranged = arrange([group], Words(random.Random(seed), "train"), True, False)
        (rows,) = arranged.answer.values()
        assert len({tuple(row) for row in rows}) == 1
        jsonschema.validate(arranged.answer, arranged.schema)


def test_default_keys_come_in_order_under_their_first_name() -> None:
    facts = [Field(("blood status",), STRING, "x"), Field(("alive", "living"), BOOLEAN, True)]
    words = Words(random.Random(0), "train")
    assert arrange(facts, words, False, keep_spaces=True).answer == {
        "blood status": "x",
        "alive": True,
    }
    assert list(arrange(facts, words, False, keep_spaces=False).answer) == ["blood_status", "alive"]


def test_a_listing_reads_as_prose() -> None:
    assert listing([]) == ""
    assert listing(["a"]) == "a"
    assert listing(["a", "b", "c"]) == "a, b and c"
