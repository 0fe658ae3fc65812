"""The committed weights: small, complete, and able to read images."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from PIL import Image
from transformers import AutoConfig

from app.demo import VISION_MODEL_PATH
from tools.demo_vision.__main__ import main
from tools.demo_vision.corpus import IMAGE, examples
from tools.demo_vision.evaluate import Demo, Score, schema_of, scored
from tools.demo_vision.scenes import KINDS, Kind
from tools.demo_vision.tokenizer import CHAT_TEMPLATE, prompt

_IMAGES = Path(__file__).resolve().parents[3] / "docs/images"
_needs_fonts = pytest.mark.needs("fonts")


@pytest.fixture(scope="module")
def demo() -> Demo:
    return Demo()


def test_the_folder_is_smaller_than_8_megabytes() -> None:
    assert sum(file.stat().st_size for file in VISION_MODEL_PATH.iterdir()) < 8_000_000


def test_it_is_a_model_of_transformers_own_without_code() -> None:
    config = AutoConfig.from_pretrained(VISION_MODEL_PATH, trust_remote_code=False)
    assert (config.model_type, config.vision_config.model_type) == ("llava", "siglip_vision_model")
    assert not list(VISION_MODEL_PATH.glob("*.py"))


def test_the_chat_template_writes_what_the_model_was_trained_on(demo: Demo) -> None:
    parts: list[Any] = [{"type": "image"}, {"type": "text", "text": "Read this card."}]
    for content in (parts, parts[::-1]):
        messages = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": content},
        ]
        text = "".join(part.get("text", IMAGE) for part in content)
        turns: Any = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": text})
        assert prompt(turns) == demo.processor.apply_chat_template(
            messages, chat_template=CHAT_TEMPLATE, add_generation_prompt=True
        )
        assert prompt(turns) == demo.processor.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )


@_needs_fonts
def test_it_reads_words_and_fonts_that_it_has_never_seen(demo: Demo) -> None:
    score = Score()
    for kind in KINDS:
        asked = list(examples(kind, 6, seed=77, fonts="held_out"))
        for example, answer in zip(asked, demo.answers(asked), strict=True):
            score.add(scored(example, answer))
    assert score.parsed >= 22
    assert score.right / score.fields >= 0.6


@_needs_fonts
def test_a_field_counts_where_it_is_there_and_the_same() -> None:
    (example,) = examples("card", 1, seed=1)
    wrong = json.loads(example.answer) | {"level": 100}
    assert scored(example, example.answer) == Score(1, 1, 1, 5, 5)
    assert scored(example, json.dumps(wrong)) == Score(1, 1, 0, 5, 4)
    assert scored(example, example.answer[:-1]) == Score(1, 0, 0, 5, 0)
    assert scored(example, "[]") == Score(1, 1, 0, 5, 0)


@_needs_fonts
def test_the_pictures_in_docs_are_what_the_command_draws(tmp_path: Path) -> None:
    main(["draw", str(tmp_path)])
    for kind in KINDS:
        drawn, kept = (np.asarray(Image.open(at / f"{kind}.png")) for at in (tmp_path, _IMAGES))
        # Another release of FreeType may round edges differently.
        assert np.abs(drawn.astype(int) - kept.astype(int)).mean() < 4


@_needs_fonts
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_valid_against_its_schema_and_without_a_key_it_is_not(kind: Kind) -> None:
    for example in examples(kind, 5, seed=3):
        schema = schema_of(example.record)
        jsonschema.validate(example.record, schema)
        key = next(iter(example.record))
        less = {name: value for name, value in example.record.items() if name != key}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(less, schema)
