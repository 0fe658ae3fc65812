"""Tokenizers out of GGUF files against the originals that they were written from."""

from __future__ import annotations

import json
import lzma
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf")

import gguf
from transformers import PreTrainedTokenizerFast

from app.core.errors import UnsupportedModel
from app.core.model_name import reads_gguf
from app.text import HfTokenizer, Vocabulary
from app.text.gguf_tokenizer import gguf_tokenizer

pytestmark = pytest.mark.skipif(not reads_gguf(), reason="needs a recent transformers")

ORIGINALS = Path(__file__).parent.parent / "data" / "tokenizers"
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
TEXTS = (
    "Hello world",
    "  hi\n\n\n  there\t",
    " 123456 7 89",
    "don't I'LL we've",
    "naïve cafe\u0301 A\u030a",  # Qwen's tokenizer composes them
    "日本語のテキスト",
    "<|im_start|>user<|im_end|><|endoftext|>",
    '{"name": "Ada", "n": 12.5e3}',
    "🤖👩\u200d👧",
)


def written(path: Path, tokenizer: dict[str, Any], kind: str, **more: str) -> str:
    """A file with the tokenizer alone, as llama.cpp's converter writes it."""
    added = {token["content"]: token for token in tokenizer["added_tokens"]}
    ids = {**tokenizer["model"]["vocab"], **{name: token["id"] for name, token in added.items()}}
    names = sorted(ids, key=ids.__getitem__)
    types = gguf.TokenType
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
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
    """An original with so many of its first tokens; all of them take seconds."""
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
    assert found.render_chat([{"role": "user", "content": "x"}]).tail.startswith("<|im_start|>x")
    ours, theirs = (Vocabulary.from_tokenizer(each.hf, []) for each in (found, original))
    assert ours.token_bytes == theirs.token_bytes


def small(**changes: Any) -> dict[str, Any]:
    """Every byte, a word that no merges lead to, and a beginning."""
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
    with pytest.raises(UnsupportedModel, match="splits text as new-kind"):
        HfTokenizer.load(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="cannot read the tokenizer"):
        HfTokenizer.load(str(tmp_path / "none.gguf"))
