from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AddedToken, PreTrainedTokenizerFast

from app.core.errors import InvalidRequest, UnsupportedModel
from app.core.text import SEAM, RenderedPrompt
from app.text import HfTokenizer, Vocabulary
from app.text.tokenizer import _copy

TEMPLATE = "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}{% endfor %}<s>"


def byte_level_tokenizer(template: str | None = None) -> HfTokenizer:
    """A tokenizer with one token for each byte, and ``<s>``."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<s>")
    fast.chat_template = template
    return HfTokenizer(fast)


def spaced_tokenizer() -> HfTokenizer:
    """A SentencePiece-like tokenizer, which puts a space before all text."""
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


def test_other_threads_run_while_a_long_prompt_is_tokenized() -> None:
    tokenizer = byte_level_tokenizer()
    thread = threading.Thread(target=tokenizer.encode_prompt, args=("a" * 1_000_000,))
    thread.start()
    turns = 0
    while thread.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 10


def test_a_chat_becomes_a_prompt_by_the_template() -> None:
    tokenizer = byte_level_tokenizer(TEMPLATE)
    prompt = tokenizer.render_chat([{"role": "user", "content": "hi"}])
    assert prompt == RenderedPrompt(tokenizer.encode_prompt("<s>user:hi<s>"), "<s>user:hi<s>")
    long = tokenizer.render_chat([{"role": "user", "content": "hi" * 100}])
    assert long.tail == ("hi" * 100 + "<s>")[-64:]


def test_a_prompt_of_too_much_text_is_refused_before_it_is_tokenized() -> None:
    tokenizer = HfTokenizer(byte_level_tokenizer("{{ messages[0].content }}").hf, max_characters=4)
    assert len(tokenizer.encode_prompt("abcd")) == 4
    chat = [{"role": "user", "content": "abcd"}]
    assert len(tokenizer.render_chat(chat).tokens) == 4
    with pytest.raises(InvalidRequest, match="has 5 characters of text and the limit is 4"):
        tokenizer.encode_prompt("abcde")
    chat[0]["content"] = f"ab{SEAM}cd"
    with pytest.raises(InvalidRequest, match="has 5 characters"):
        tokenizer.render_chat(chat)


def test_tools_and_options_reach_the_template() -> None:
    tokenizer = byte_level_tokenizer("{{ tools | tojson }} {{ thinking }} {{ other is defined }}")
    messages = [{"role": "user", "content": "hi"}]
    prompt = tokenizer.render_chat(messages, [{"name": "f"}], {"thinking": True})
    assert prompt.tail == '[{"name": "f"}] True False'
    assert tokenizer.render_chat(messages, None, {"thinking": 1}).tail == "null 1 False"


@pytest.mark.parametrize(
    "name",
    ["messages", "tools", "chat_template", "tokenize", "add_generation_prompt", "conversation"],
)
def test_what_the_server_tells_the_template_is_no_option(name: str) -> None:
    tokenizer = byte_level_tokenizer(TEMPLATE)
    with pytest.raises(InvalidRequest, match=name):
        tokenizer.render_chat([{"role": "user", "content": "hi"}], None, {name: "x"})


@pytest.mark.parametrize("text", ["héllo <s> 東京", "", " a b "])
def test_decoding_a_prompt_gives_its_text(text: str) -> None:
    tokenizer = byte_level_tokenizer()
    assert tokenizer.decode(tokenizer.encode_prompt(text)) == text


def test_special_tokens_are_added_to_prompts_only_on_demand() -> None:
    tokenizer = byte_level_tokenizer()
    content = json.loads(tokenizer.hf.backend_tokenizer.to_str())
    (end,) = (token["id"] for token in content["added_tokens"])
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [end], "tokens": ["<s>"]}},
    }
    backend = Tokenizer.from_str(json.dumps(content))
    begun = HfTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<s>"))
    assert begun.encode_prompt("a", add_special_tokens=True) == [end, *begun.encode_prompt("a")]
    assert begun.encode("a") == begun.encode_prompt("a")


def test_a_model_without_chat_template_refuses_chats() -> None:
    with pytest.raises(InvalidRequest, match="no chat template"):
        byte_level_tokenizer().render_chat([{"role": "user", "content": "hi"}])


def test_a_template_that_refuses_is_the_callers_error() -> None:
    tokenizer = byte_level_tokenizer("{{ raise_exception('only one turn') }}")
    with pytest.raises(InvalidRequest, match="only one turn"):
        tokenizer.render_chat([{"role": "user", "content": "hi"}])


def test_a_template_that_does_not_come_to_an_end_is_too() -> None:
    """Apertus' template has a macro that calls itself endlessly on a list of types."""
    tokenizer = byte_level_tokenizer("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}")
    with pytest.raises(InvalidRequest, match="recursion"):
        tokenizer.render_chat([{"role": "user", "content": "hi"}])


def test_a_missing_tokenizer_is_an_unsupported_model(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="cannot load the tokenizer"):
        HfTokenizer.load(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", '{"version": "1.0", "model": {"type": "Unknown"}}'),
        ("tokenizer.json", "[]"),
        ("tokenizer_config.json", "[]"),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_too(name: str, content: str, tmp_path: Path) -> None:
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE())).save_pretrained(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(UnsupportedModel, match="cannot load the tokenizer of"):
        HfTokenizer.load(str(tmp_path))


def test_no_space_is_put_before_re_tokenized_text() -> None:
    tokenizer = spaced_tokenizer()
    vocabulary = Vocabulary.from_tokenizer(tokenizer.hf)
    assert [vocabulary.token_bytes[token] for token in tokenizer.encode("ab")] == [b"a", b"b"]


MARKS = ("[TOOL_CALLS]", "[ARGS]")


def marked(tokenizer: HfTokenizer) -> HfTokenizer:
    """``tokenizer`` with Mistral's marks as special tokens that drop the space after them."""
    tokens = [AddedToken(mark, special=True, rstrip=True, normalized=False) for mark in MARKS]
    tokenizer.hf.add_tokens(tokens, special_tokens=True)
    return HfTokenizer(tokenizer.hf)


@pytest.mark.parametrize("make", [byte_level_tokenizer, spaced_tokenizer])
def test_marks_that_are_special_tokens_can_be_made_writable(
    make: Callable[[], HfTokenizer],
) -> None:
    tokenizer = marked(make())
    text = "[TOOL_CALLS]a[ARGS] b"
    silent = Vocabulary.from_tokenizer(tokenizer.hf)
    ids = {mark: tokenizer.encode_prompt(mark)[-1] for mark in MARKS}
    assert set(MARKS) <= tokenizer.special_tokens
    assert not set(ids.values()) & set(tokenizer.encode(text))
    assert all(silent.token_bytes[number] is None for number in ids.values())

    tokenizer.make_writable([*MARKS, "<tool_call>"])
    spoken = Vocabulary.from_tokenizer(tokenizer.hf, (), MARKS)
    tokens = tokenizer.encode(text)
    assert [token for token in tokens if token in ids.values()] == list(ids.values())
    assert b"".join(spoken.token_bytes[token] or b"?" for token in tokens) == text.encode()


def test_the_end_of_sequence_is_never_made_writable() -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.make_writable(["<s>"])
    vocabulary = Vocabulary.from_tokenizer(tokenizer.hf, (), ["<s>"])
    (end,) = vocabulary.eos_ids
    assert vocabulary.token_bytes[end] is None
    assert end not in tokenizer.encode("<s>")


def test_several_templates_are_shown_as_one_text() -> None:
    tokenizer = byte_level_tokenizer("{{ messages }}")
    assert tokenizer.chat_template == "{{ messages }}"
    tokenizer.hf.chat_template = {"default": "a", "tool_use": "b"}
    assert tokenizer.chat_template == "a\nb"
    assert byte_level_tokenizer().chat_template is None


def test_a_copy_has_the_added_tokens_of_the_tokenizer_and_options_of_its_own() -> None:
    backend = byte_level_tokenizer().hf.backend_tokenizer
    backend.add_tokens([AddedToken("plain", normalized=True), AddedToken("wide", rstrip=True)])
    backend.add_special_tokens([AddedToken("</s>", lstrip=True)])
    backend.add_tokens(["last"])
    copy = _copy(backend)
    assert copy.to_str() == backend.to_str()
    copy.encode_special_tokens = True
    assert [len(each.encode("a</s>wide  last").ids) for each in (backend, copy)] == [4, 7]


def test_a_copy_has_the_ids_of_added_tokens_beyond_a_gap() -> None:
    content = json.loads(byte_level_tokenizer().hf.backend_tokenizer.to_str())
    content["model"]["vocab"]["<far>"] = 300
    content["added_tokens"].insert(0, {**content["added_tokens"][0], "id": 300, "content": "<far>"})
    backend = Tokenizer.from_str(json.dumps(content))
    assert backend.encode("<s><far>").ids == [257, 300]
    assert _copy(backend).to_str() == backend.to_str()
