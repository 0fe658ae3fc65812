from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from app.core.errors import InvalidRequest, UnsupportedModel
from app.text import HfTokenizer, Vocabulary

TEMPLATE = "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}{% endfor %}<s>"


def byte_level_tokenizer(template: str | None = None) -> HfTokenizer:
    """One token for each byte, and ``<s>``."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<s>")
    fast.chat_template = template
    return HfTokenizer(fast)


def spaced_tokenizer() -> HfTokenizer:
    """A SentencePiece-like one, which puts a space before all text."""
    vocab = {"▁": 0, "a": 1, "b": 2, "<0x0A>": 3, "<unk>": 4}
    backend = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return HfTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))


def test_special_token_names_in_an_answer_are_plain_text() -> None:
    tokenizer = byte_level_tokenizer()
    vocabulary = Vocabulary.from_tokenizer(tokenizer.hf)
    assert tokenizer.encode_prompt("<s>") == sorted(vocabulary.eos_ids)
    spelled = [vocabulary.token_bytes[token] for token in tokenizer.encode("<s>")]
    assert spelled == [b"<", b"s", b">"]


def test_a_chat_becomes_a_prompt_by_the_template() -> None:
    tokenizer = byte_level_tokenizer(TEMPLATE)
    prompt = tokenizer.render_chat([{"role": "user", "content": "hi"}])
    assert prompt == tokenizer.encode_prompt("<s>user:hi<s>")


def test_a_model_without_chat_template_refuses_chats() -> None:
    with pytest.raises(InvalidRequest, match="no chat template"):
        byte_level_tokenizer().render_chat([{"role": "user", "content": "hi"}])


def test_a_template_that_refuses_is_the_callers_error() -> None:
    tokenizer = byte_level_tokenizer("{{ raise_exception('only one turn') }}")
    with pytest.raises(InvalidRequest, match="only one turn"):
        tokenizer.render_chat([{"role": "user", "content": "hi"}])


def test_a_missing_tokenizer_is_an_unsupported_model(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="cannot load the tokenizer"):
        HfTokenizer.load(str(tmp_path / "nowhere"))


def test_no_space_is_put_before_re_tokenized_text() -> None:
    tokenizer = spaced_tokenizer()
    vocabulary = Vocabulary.from_tokenizer(tokenizer.hf)
    assert [vocabulary.token_bytes[token] for token in tokenizer.encode("ab")] == [b"a", b"b"]
