"""The tests of ``real_tokenizers`` find the faults of small tokenizers with one fault each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from app.constraint import Compiler
from app.text import HfTokenizer, Vocabulary
from tests.text.real_tokenizers import (
    DOCUMENTS,
    differing_tokens,
    missing_bytes,
    split_as_the_tokenizer_does,
    trial,
)
from tools import datasets

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def folder_of(path: Path, tokens: list[str], merges: list[tuple[str, str]]) -> str:
    """A folder with a byte-level tokenizer, as servers load it."""
    vocabulary = {token: number for number, token in enumerate(["<end>", *tokens])}
    backend = Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<end>"])
    path.mkdir()
    backend.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return str(path)


def loaded(place: str) -> tuple[HfTokenizer, Vocabulary]:
    tokenizer = HfTokenizer.load(place)
    return tokenizer, Vocabulary.from_tokenizer(tokenizer.hf)


def test_bytes_without_a_token_are_named(tmp_path: Path) -> None:
    few = [each for each in ALPHABET if each not in "{ñ"]  # ñ is the byte F1 in this alphabet
    _, vocabulary = loaded(folder_of(tmp_path / "few", few, []))
    assert missing_bytes(vocabulary) == [ord("{"), 0xF1]


def test_a_token_that_is_decoded_to_something_else_is_named(tmp_path: Path) -> None:
    tokenizer, vocabulary = loaded(folder_of(tmp_path / "all", ALPHABET, []))
    assert list(differing_tokens(tokenizer, vocabulary)) == []
    wrong = list(vocabulary.token_bytes)
    place = wrong.index(b"x")
    wrong[place] = b"y"
    (found,) = differing_tokens(tokenizer, Vocabulary(wrong, vocabulary.eos_ids))
    assert found == f"token {place} is b'y' here and decoded as 'x'"


def test_a_split_that_is_not_the_tokenizers_is_found(tmp_path: Path) -> None:
    """The split fails with a vocabulary that lacks a token of the tokenizer's merges."""
    merges = [('"', "}"), ("a", "b")]
    place = folder_of(tmp_path / "merging", [*ALPHABET, '"}', "ab"], merges)
    tokenizer, vocabulary = loaded(place)
    value = {"ab": "ab"}

    def failures(spelling: Vocabulary) -> list[str]:
        return split_as_the_tokenizer_does(
            tokenizer, spelling, Compiler(spelling), {"const": value}, value
        )[1]

    assert failures(vocabulary) == []
    without = [None if data == b"ab" else data for data in vocabulary.token_bytes]
    (failure,) = failures(Vocabulary(without, vocabulary.eos_ids))
    assert "no split into" in failure


@pytest.mark.parametrize("name", datasets.tokenizers())
def test_the_tokenizers_of_this_repository_pass(name: str, tmp_path: Path) -> None:
    packed = datasets.tokenizers()[name]
    (tmp_path / "tokenizer.json").write_bytes(datasets.tokenizer_json(packed))
    settings = packed / "tokenizer_config.json"
    (tmp_path / settings.name).write_bytes(settings.read_bytes())
    tokenizer, vocabulary = loaded(str(tmp_path))
    compiler = Compiler(vocabulary)
    for schema, value in DOCUMENTS:
        leapt, failures = split_as_the_tokenizer_does(
            tokenizer, vocabulary, compiler, schema, value
        )
        assert failures == []
        assert leapt > 0


def test_a_row_says_it_all(tmp_path: Path) -> None:
    place = folder_of(tmp_path / "all", ALPHABET, [])
    found = trial("Tiny", place, "package 1.0\na note", schemas=1)
    assert found.failures == []
    row = found.row()
    assert row.startswith("| Tiny | `package 1.0` | 257 | none | 0 | 0 of 5 | 0 of ")
    assert row.endswith(" | none | a note |")
