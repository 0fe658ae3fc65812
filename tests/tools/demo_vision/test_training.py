"""Training data, initial weights, and training of the demo vision model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlavaForConditionalGeneration

from app.demo import VISION_MODEL_PATH
from tools.demo_model.tokenizer import END
from tools.demo_vision import pool
from tools.demo_vision.__main__ import main
from tools.demo_vision.answers import IGNORED, padded, pieces, row
from tools.demo_vision.corpus import ACROSS, IMAGE, PATCHES, written
from tools.demo_vision.model import Reader, coloured, new_model, new_projector
from tools.demo_vision.picture import ALPHABET, SIDE
from tools.demo_vision.pool import Drawn, batches
from tools.demo_vision.tokenizer import new_tokenizer

pytestmark = pytest.mark.needs("fonts")


@pytest.fixture(autouse=True)
def _torchs_own_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "CHUNK", 32)


@pytest.fixture
def drawn(few: None, tmp_path: Path) -> Drawn:
    return next(batches(tmp_path, "scenes", chunks=1, size=32, seed=1))


def test_a_value_is_one_token_for_each_character_and_a_key_is_one() -> None:
    tokenizer = new_tokenizer()
    tokens = tokenizer.tokenize('{"name": "Zoe Total", "price": 3.50}')
    assert tokens == [
        "{", '"name":Ġ', '"', *"Zoe", "Ġ", *"Total", '"', ",Ġ", '"price":Ġ', *"3.50", "}",
    ]  # fmt: skip
    for text in ("", "東京 é\n\x00", '{"a": [1, 2]}'):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_an_answer_in_pieces_has_the_tokens_of_the_whole(drawn: Drawn) -> None:
    tokenizer = new_tokenizer()
    for kind, record in zip(drawn.kinds, drawn.records, strict=True):
        parts = [text for text, _ in pieces(kind, record)]
        assert "".join(parts) == written(record)
        ids = [token for part in parts for token in tokenizer.encode(part)]
        assert ids == tokenizer.encode(written(record))


def test_the_next_character_stands_in_the_patch_that_heads_are_told_to_look_at(
    drawn: Drawn,
) -> None:
    tokenizer = new_tokenizer()
    guided = characters = 0
    for index in range(32):
        labels = drawn.labels[index]
        made = row(tokenizer, drawn.kinds[index], drawn.records[index], labels, f"{index}")
        image = made.inputs.index(int(str(tokenizer.convert_tokens_to_ids(IMAGE))))
        assert made.inputs[image : image + PATCHES] == [made.inputs[image]] * PATCHES
        answered = [place for place, token in enumerate(made.labels) if token != IGNORED]
        assert tokenizer.decode(made.inputs[answered[-1] :]) == END
        for place in answered:
            said = str(tokenizer.decode([made.inputs[place]]))
            characters += said.isalnum()
            if made.sources[place] == IGNORED or said == '"':
                continue
            patch = labels[made.sources[place] - image].tolist()
            assert said in [ALPHABET[slot - 1] for slot in patch[:3] if slot]
            guided += 1
    # Not all characters: the labels of a patch have only its first three.
    assert guided > 0.9 * characters


def test_labels_stand_at_the_token_before(drawn: Drawn) -> None:
    tokenizer = new_tokenizer()
    made = [
        row(tokenizer, drawn.kinds[index], drawn.records[index], drawn.labels[index], "1")
        for index in range(3)
    ]
    batch = padded(made, pad=0)
    for number, one in enumerate(made):
        for place in range(1, len(one.inputs)):
            assert batch.labels[number, place - 1] == one.labels[place]
            assert batch.sources[number, place - 1] == one.sources[place]
            if one.labels[place] != IGNORED:
                assert one.labels[place] == one.inputs[place]
        assert (batch.labels[number, len(one.inputs) - 1 :] == IGNORED).all()


def test_heads_of_the_first_layer_attend_to_one_neighbour_each_before_any_training() -> None:
    torch.manual_seed(1)
    tower: Any = Reader(new_projector()).tower
    hidden = tower.embeddings(torch.rand(4, 1, SIDE, SIDE) * 2 - 1)
    _, weights = tower.encoder.layers[0].self_attn(
        tower.encoder.layers[0].layer_norm1(hidden), None
    )
    middle = 5 * ACROSS + 5
    for head, neighbour in enumerate((-1, 1, -ACROSS, ACROSS)):
        assert (weights[:, head, middle].argmax(-1) == middle + neighbour).all()
        assert (weights[:, head, middle, middle + neighbour] > 0.5).all()


@torch.no_grad()
def test_the_model_sees_in_colour_what_the_reader_sees_in_grey() -> None:
    torch.manual_seed(2)
    reader, model = Reader(new_projector()), new_model(new_tokenizer())
    model.model.vision_tower.load_state_dict(coloured(reader.tower).state_dict())
    model.model.multi_modal_projector.load_state_dict(reader.projector.state_dict())
    pictures = torch.rand(2, 3, SIDE, SIDE) * 2 - 1
    seen = model.model.get_image_features(pictures).pooler_output
    expected = reader.features(pictures.mean(1, keepdim=True))
    torch.testing.assert_close(torch.stack(list(seen)), expected, rtol=1e-4, atol=1e-5)


def test_one_command_trains_all_stages_and_goes_on_from_what_it_wrote(
    few: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    common = ["train", "--chunks", "2", "--batch", "8", "--threads", "1", "--work", str(work)]
    common += ["--out", str(out), "--polish-steps", "2"]
    main([*common, "--read-steps", "2", "--answer-steps", "2"])
    assert capsys.readouterr().out.count("done: 2 steps") == 3
    assert {file.name for file in out.iterdir()} == {
        file.name for file in VISION_MODEL_PATH.iterdir()
    }
    before = (out / "model.safetensors").read_bytes()
    main([*common, "--read-steps", "0", "--answer-steps", "0"])
    assert (out / "model.safetensors").read_bytes() != before
    assert capsys.readouterr().out.count("done: 2 steps") == 1
    main(["evaluate", "--per-kind", "1", "--folder", str(out)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[-10:]]
    assert [(line[0], line[1]) for line in lines] == [
        (kind, fonts)
        for fonts in ("train", "held_out")
        for kind in ("receipt", "badge", "chart", "card", "all")
    ]


def test_the_saved_model_has_the_features_of_the_trained_reader(
    few: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    steps = ["--read-steps", "1", "--answer-steps", "1", "--polish-steps", "1"]
    main(
        [
            "train",
            *steps,
            "--chunks",
            "2",
            "--batch",
            "4",
            "--work",
            str(tmp_path),
            "--out",
            str(out),
        ]
    )
    reader = Reader(new_projector())
    reader.load_state_dict(torch.load(tmp_path / "reader.pt"))
    model = LlavaForConditionalGeneration.from_pretrained(out, dtype=torch.float32)
    picture = torch.rand(1, 3, SIDE, SIDE) * 2 - 1
    with torch.no_grad():
        seen = model.model.get_image_features(picture).pooler_output[0]
        expected = reader.features(picture.mean(1, keepdim=True))[0]
    assert (seen - expected).abs().max() < 0.05 * expected.abs().max()
