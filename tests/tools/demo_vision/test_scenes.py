"""Pictures: equal for equal seeds, complete, and labelled with their text."""

import json
import random

import numpy as np
import pytest

from tools.demo_model.words import split_of
from tools.demo_vision.corpus import (
    ACROSS,
    HEADS,
    NOTHING,
    PATCH,
    UNASKED,
    asked_of,
    examples,
    patch_labels,
    written,
)
from tools.demo_vision.picture import ALPHABET, SIDE, faces
from tools.demo_vision.scenes import FIELDS, KINDS, PAGE, Kind, draw

pytestmark = pytest.mark.needs("fonts")

_ALL: tuple[Kind, ...] = (*KINDS, "page")


@pytest.mark.parametrize("kind", _ALL)
def test_a_picture_is_the_same_for_the_same_seed_alone(kind: Kind) -> None:
    (record, picture), (again, same) = (draw(kind, 5, "train", "train") for _ in range(2))
    assert record == again
    assert picture.glyphs == same.glyphs
    assert (picture.pixels == same.pixels).all()
    assert (picture.pixels != draw(kind, 6, "train", "train")[1].pixels).any()


@pytest.mark.parametrize("kind", _ALL)
def test_a_grey_picture_is_the_mean_of_the_colours(kind: Kind) -> None:
    for seed in range(8):
        record, picture = draw(kind, seed, "train", "train")
        same, grey = draw(kind, seed, "train", "train", grey=True)
        assert record == same
        assert picture.glyphs == grey.glyphs
        # Values that noise moves beyond black or white are clipped in each colour, before the mean.
        uncut = (picture.pixels > 0).all(-1) & (picture.pixels < 255).all(-1)
        off = np.abs(picture.pixels.mean(-1) - grey.pixels)[uncut]
        assert off.mean() < 1
        assert off.max() <= 8


@pytest.mark.parametrize("kind", _ALL)
def test_what_is_written_is_inside_the_picture_and_dark_on_light(kind: Kind) -> None:
    for seed in range(40):
        _, picture = draw(kind, seed, "held_out", "held_out")
        bright = picture.pixels.mean(-1)
        for glyph in picture.glyphs:
            assert 3 <= glyph.x <= SIDE - 3
            assert 3 <= glyph.y <= SIDE - 3
            x, y = int(glyph.x), int(glyph.y)
            if glyph.character.isalnum():
                around = bright[max(0, y - 8) : y + 8, max(0, x - 7) : x + 8]
                assert around.min() < np.median(bright) - 60


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_each_field_is_what_the_record_says(kind: Kind) -> None:
    for seed in range(40):
        record, picture = draw(kind, seed, "train", "train")
        runs: dict[str, str] = {}
        for glyph in picture.glyphs:
            assert glyph.field in FIELDS
            assert glyph.character in ALPHABET
            runs[glyph.field] = runs.get(glyph.field, "") + glyph.character
        texts = json.dumps(record).replace("}", " ").replace(",", " ")
        for field, text in runs.items():
            if field != "label":
                value = text.rstrip("0").rstrip(".") if field[-5:-1] == "price" else text
                assert value.rstrip("0") in texts, (field, text, record)


def test_invented_words_of_one_split_are_in_no_picture_of_the_other() -> None:
    for seed in range(40):
        record, _ = draw("card", seed, "held_out", "held_out")
        assert split_of(str(record["house"])) == "held_out"
        record, _ = draw("card", seed, "train", "train")
        assert split_of(str(record["house"])) == "train"


def test_no_face_of_one_split_is_of_a_family_of_the_other() -> None:
    families = [{face.split("-")[0] for face in faces(split)} for split in ("train", "held_out")]
    assert not families[0] & families[1]


def test_patches_are_labelled_with_the_characters_whose_middle_lies_in_them() -> None:
    for kind in _ALL:
        _, picture = draw(kind, 3, "train", "train")
        labels = patch_labels(picture.glyphs)
        assert labels.shape == (ACROSS * ACROSS, len(HEADS))
        for patch, (first, second, third, before, field, last) in enumerate(labels.tolist()):
            inside = sorted(
                (glyph.x, glyph.character)
                for glyph in picture.glyphs
                if int(glyph.y // PATCH) * ACROSS + int(glyph.x // PATCH) == patch
            )
            said = "".join(ALPHABET[slot - 1] for slot in (first, second, third) if slot)
            assert said == "".join(character for _, character in inside)[:3]
            assert (first == NOTHING) == (not inside)
            if not inside:
                assert (before, field, last) == (NOTHING, NOTHING, 0)
            elif kind == PAGE:
                assert field == UNASKED


def test_an_answer_is_json_of_what_the_picture_shows() -> None:
    for kind in KINDS:
        for example in examples(kind, 20, seed=1):
            assert json.loads(example.answer) == example.record


def test_the_keys_that_are_asked_for_are_those_of_the_answer_in_their_order() -> None:
    record, _ = draw("receipt", 1, "train", "train")
    shapes = set()
    for seed in range(60):
        messages, part, decided = asked_of("receipt", record, random.Random(seed))
        text = messages[-1]["content"]
        assert part.items() <= record.items()
        listed = ", ".join(part) in text
        assert decided or not listed
        assert listed or not decided or part == record
        shapes.add((listed, decided))
    assert shapes == {(True, True), (False, True), (False, False)}


def test_amounts_keep_the_decimals_that_are_printed() -> None:
    assert written({"total": 3.5, "items": [{"price": 10.0}], "n": 3}) == (
        '{"total": 3.50, "items": [{"price": 10.00}], "n": 3}'
    )
