from __future__ import annotations

import json
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from app.core.errors import UnsupportedModel
from app.text import Vocabulary
from tools import datasets

SENTENCES = ["Hello, world!", '{"naïve": "東京 🗼", "n": 12.5}', "tabs\tand\n\nlines  ", "ß—“”"]


def byte_level(vocab: dict[str, int]) -> dict[str, Any]:
    return {"model": {"type": "BPE", "vocab": vocab}, "decoder": {"type": "ByteLevel"}}


def test_byte_level_texts_become_bytes() -> None:
    vocabulary = Vocabulary.from_json(byte_level({"a": 0, "Ġb": 1, "Ã©": 2}))
    assert vocabulary.token_bytes == (b"a", b" b", "é".encode())


def test_special_tokens_have_no_bytes_and_other_added_ones_do() -> None:
    content = byte_level({"a": 0}) | {
        "added_tokens": [
            {"id": 2, "content": "<end>", "special": True},
            {"id": 3, "content": "<tool>", "special": False},
        ]
    }
    vocabulary = Vocabulary.from_json(content, eos_ids=[2])
    assert vocabulary.token_bytes == (b"a", None, None, b"<tool>")
    assert vocabulary.size == 4


def test_sentencepiece_texts_become_bytes() -> None:
    decoders = [{"type": "Replace"}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    content = {
        "model": {"type": "BPE", "vocab": {"▁the": 0, "<0x0A>": 1}},
        "decoder": {"type": "Sequence", "decoders": decoders},
    }
    assert Vocabulary.from_json(content).token_bytes == (b" the", b"\n")


def test_an_added_run_of_blanks_is_blanks_as_the_decoder_has_it() -> None:
    """The added tokens of Gemma 3 include runs of 2 to 31 spaces."""
    backend = Tokenizer(models.BPE({"a": 0, "▁▁": 1}, []))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    backend.add_tokens([AddedToken("▁▁", normalized=False)])
    vocabulary = Vocabulary.from_json(json.loads(backend.to_str()))
    assert vocabulary.token_bytes == (b"a", b"  ")
    assert backend.decode([0, 1], skip_special_tokens=False).endswith("  ")


def test_an_unknown_alphabet_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="WordPiece"):
        Vocabulary.from_json({"model": {"vocab": {"a": 0}}, "decoder": {"type": "WordPiece"}})


def test_an_end_of_sequence_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="end-of-sequence"):
        Vocabulary([b"a"], eos_ids=[7])


@pytest.mark.parametrize("name", datasets.tokenizers())
def test_the_bytes_of_encoded_text_are_the_text(name: str) -> None:
    text = datasets.tokenizer_json(datasets.tokenizers()[name])
    vocabulary = Vocabulary.from_json(json.loads(text))
    tokenizer = Tokenizer.from_buffer(text)
    for sentence in SENTENCES:
        ids = tokenizer.encode(sentence, add_special_tokens=False).ids
        assert b"".join(vocabulary.token_bytes[i] or b"" for i in ids) == sentence.encode()
