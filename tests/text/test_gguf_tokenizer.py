"""Tokenizers loaded from GGUF files, compared with the originals."""

from __future__ import annotations

import json
import lzma
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import pytest
from transformers import PreTrainedTokenizerFast

from app.core.errors import UnsupportedModel
from app.text import HfTokenizer, Vocabulary
from app.text.gguf_tokenizer import gguf_tokenizer

ORIGINALS = Path(__file__).parent.parent / "data" / "tokenizers"
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
TEXTS = (
    "Hello world",
    "  hi\n\n\n  there\t",
    " 123456 7 89",
    "don't I'LL we've",
    "naïve cafe\u0301 A\u030a",  # Qwen's tokenizer normalizes to NFC
    "日本語のテキスト",
    "<|im_start|>user<|im_end|><|endoftext|>",
    '{"name": "Ada", "n": 12.5e3}',
    "🤖👩\u200d👧",
)


def written(path: Path, tokenizer: dict[str, Any], kind: str | None, **more: str) -> str:
    """Write a GGUF file with only the tokenizer, as llama.cpp's converter does; its path."""
    added = {token["content"]: token for token in tokenizer["added_tokens"]}
    ids = {**tokenizer["model"]["vocab"], **{name: token["id"] for name, token in added.items()}}
    names = sorted(ids, key=ids.__getitem__)
    types = gguf.TokenType
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    if kind is not None:
        writer.add_tokenizer_pre(kind)
    writer.add_token_list(names)
    writer.add_token_types(
        [
            (types.CONTROL if added[name]["special"] else types.USER_DEFINED)
            if name in added
            else types.NORMAL
            for name in names
        ]
    )
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    writer.add_eos_token_id(ids[more.get("eos", "<|endoftext|>")])
    if "bos" in more:
        writer.add_bos_token_id(ids[more["bos"]])
    writer.add_chat_template(TEMPLATE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def first_tokens(name: str, count: int) -> dict[str, Any]:
    """An original cut to its first ``count`` tokens, as a test of all takes seconds."""
    with lzma.open(ORIGINALS / name / "tokenizer.json.xz") as file:
        described: dict[str, Any] = json.load(file)
    model = described["model"]
    model["vocab"] = {token: number for token, number in model["vocab"].items() if number < count}
    model["merges"] = [
        merge
        for merge in model["merges"]
        if "".join(merge.split(" ") if isinstance(merge, str) else merge) in model["vocab"]
    ]
    for number, token in enumerate(described["added_tokens"]):
        token["id"] = count + number
    return described


def random_texts(count: int) -> list[str]:
    dice = random.Random(1)
    letters = "abc XYZ019'\"{}[]:,.\n\té日ß\u0301🤖-_/\\"
    return ["".join(dice.choices(letters, k=dice.randint(1, 30))) for _ in range(count)]


@pytest.mark.parametrize(("name", "kind"), [("gpt2", "gpt-2"), ("qwen2_5", "qwen2")])
def test_text_is_split_as_by_the_original(tmp_path: Path, name: str, kind: str) -> None:
    described = first_tokens(name, 4000)
    (tmp_path / "tokenizer.json").write_text(json.dumps(described), encoding="utf-8")
    load: Any = PreTrainedTokenizerFast
    original = HfTokenizer(load(tokenizer_file=str(tmp_path / "tokenizer.json")))
    found = HfTokenizer.load(written(tmp_path / "m.gguf", described, kind))
    for text in (*TEXTS, *random_texts(200)):
        assert found.encode(text) == original.encode(text), text
        assert found.encode_prompt(text) == original.encode_prompt(text), text
    assert found.special_tokens == original.special_tokens
    assert found.hf.eos_token == "<|endoftext|>"
    tail = found.render_chat([{"role": "user", "content": "x"}]).tail
    assert tail is not None
    assert tail.startswith("<|im_start|>x")
    ours, theirs = (Vocabulary.from_tokenizer(each.hf, []) for each in (found, original))
    assert ours.token_bytes == theirs.token_bytes


def small(**changes: Any) -> dict[str, Any]:
    """A tokenizer of all bytes, a word that merges do not produce, and a BOS token."""
    alphabet = sorted(_alphabet())
    vocabulary = {name: number for number, name in enumerate([*alphabet, "ab", "abc"])}
    begin = {"content": "<s>", "id": len(vocabulary), "special": True}
    return {"model": {"vocab": vocabulary, "merges": ["a b"]}, "added_tokens": [begin]} | changes


def _alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return list(pre_tokenizers.ByteLevel.alphabet())


def test_llama_3_takes_words_that_are_tokens_and_begins_its_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", small(), "llama-bpe", eos="<s>", bos="<s>")
    tokenizer = gguf_tokenizer(path)
    assert tokenizer.tokenize("abc") == ["abc"]
    assert tokenizer.encode("ab") == tokenizer.convert_tokens_to_ids(["<s>", "ab"])
    plain = gguf_tokenizer(written(tmp_path / "n.gguf", small(), "gpt-2", eos="<s>", bos="<s>"))
    assert plain.tokenize("abc") == ["ab", "c"]
    assert plain.encode("ab") == plain.convert_tokens_to_ids(["ab"])


def test_a_way_to_split_text_that_is_not_known_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", small(), "new-kind", eos="<s>")
    with pytest.raises(
        UnsupportedModel, match=r"unsupported pre-tokenizer new-kind.*supported are .*smollm"
    ):
        HfTokenizer.load(path)


def test_a_file_that_does_not_say_how_is_split_as_by_llama_cpp_and_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "m.gguf", small(), None, eos="<s>")
    assert gguf_tokenizer(path).tokenize("ab 12+ab") == ["ab", "Ġ", "1", "2", "+", "ab"]
    assert "names no pre-tokenizer" in caplog.text


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="cannot read"):
        HfTokenizer.load(str(tmp_path / "none.gguf"))


PIECES = (
    "▁",
    "▁t",
    "he",
    "in",
    "▁the",
    "er",
    "t",
    "h",
    "e",
    "i",
    "n",
    "r",
    "s",
    "▁in",
    "the",
    "ther",
)
SCORES = (-20, -1, -2, -3, -4, -5, -21, -22, -23, -24, -25, -26, -27, -6, -7, -8)


def scored(path: Path, architecture: str = "llama", more: tuple[str, ...] = (), **said: Any) -> str:
    """A file with a SentencePiece vocabulary: special tokens, bytes, ``PIECES``, and ``more``."""
    types = gguf.TokenType
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, *more]
    kinds = [types.UNKNOWN, types.CONTROL, types.CONTROL, *[types.BYTE] * 256]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(names)
    writer.add_token_scores([0.0] * 259 + [float(score) for score in SCORES] + [-1e3] * len(more))
    writer.add_token_types(kinds + [types.NORMAL] * len(PIECES) + [types.CONTROL] * len(more))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    for key, value in said.items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def best_pieces(text: str) -> list[str]:
    """SentencePiece's algorithm: join the leftmost pair of the highest score until none is left."""
    found = list("▁" + text.replace(" ", "▁"))
    scores = dict(zip(PIECES, SCORES, strict=True))
    while True:
        joined = [
            (scores[a + b], -at) for at, (a, b) in enumerate(pairwise(found)) if a + b in scores
        ]
        if not joined:
            return found
        at = -max(joined)[1]
        found[at : at + 2] = [found[at] + found[at + 1]]


def test_scores_say_what_is_joined_first(tmp_path: Path) -> None:
    tokenizer = gguf_tokenizer(scored(tmp_path / "m.gguf"))
    dice = random.Random(1)
    for _ in range(300):
        text = "".join(dice.choices("theinrs  ", k=dice.randint(1, 14)))
        assert tokenizer.tokenize(text) == best_pieces(text), text
    assert tokenizer.encode("the é") == tokenizer.convert_tokens_to_ids(
        ["<s>", "▁the", "▁", "<0xC3>", "<0xA9>"]
    )
    assert tokenizer.decode(tokenizer.encode("the é"), skip_special_tokens=True) == "the é"


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("the", {}, ["▁the"]),
        ("the", {"add_space_prefix": False}, ["the"]),
        ("</s>the", {}, ["</s>", "▁the"]),
        ("[INST] the", {"more": ("[INST]",)}, ["[INST]", "▁the"]),
        ("[INST]the", {"more": ("[INST]",)}, ["[INST]", "the"]),
        ("<|end|>\nthe", {"architecture": "phi3", "more": ("<|end|>",)}, ["<|end|>", "▁the"]),
    ],
)
def test_blanks_before_words_are_those_of_the_original(
    tmp_path: Path, text: str, settings: dict[str, Any], expected: list[str]
) -> None:
    tokenizer = gguf_tokenizer(scored(tmp_path / "m.gguf", **settings))
    found = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.convert_ids_to_tokens(found) == expected


def test_gemmas_runs_of_blanks_and_order_are_its_own(tmp_path: Path) -> None:
    path = scored(tmp_path / "m.gguf", "gemma3", add_space_prefix=False)
    # Merges follow the order of the tokens, not their scores: "▁" and "t" before "h" and "e".
    assert gguf_tokenizer(path).tokenize("the ther in") == ["the", "▁the", "r", "▁in"]


def test_merges_of_characters_make_a_sentence_piece_tokenizer_too(tmp_path: Path) -> None:
    names = ["<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "▁ab", "\n"]
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "gemma4")
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list(names)
    writer.add_token_types([gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * (len(names) - 1)])
    writer.add_token_merges(["▁ a", "▁a b"])
    writer.add_eos_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tokenizer = gguf_tokenizer(str(tmp_path / "m.gguf"))
    assert tokenizer.tokenize("b ab\né") == ["b", "▁ab", "\n", "<0xC3>", "<0xA9>"]
    assert HfTokenizer(tokenizer).decode(tokenizer.encode("b ab\né")) == "b ab\né"


@pytest.mark.parametrize("kind", ["bert", "rwkv", "t5"])
def test_tokenizers_of_other_kinds_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(["a"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match=f"unsupported kind of tokenizer: {kind}"):
        gguf_tokenizer(str(tmp_path / "m.gguf"))
