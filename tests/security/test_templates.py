"""The chat template: code of a model in it, and input of a request to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.answer.formats import detect
from app.core.errors import InvalidRequest
from app.demo import MODEL_PATH
from app.text import HfTokenizer


@pytest.fixture
def tokenizer() -> HfTokenizer:
    return HfTokenizer.load(str(MODEL_PATH))


def contents(*parts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": part} for part in parts]


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('touch written') }}",
        "{{ self.__init__.__globals__.__builtins__.open('written', 'w') }}",
        "{% set x = messages.append({}) %}{{ ''|attr('__class__')|attr('__mro__') }}",
        "{{ ''['\\x5f\\x5fclass\\x5f\\x5f'].mro() }}",
        "{{ '{0.__class__.__mro__}'.format('').mro() }}",
        "{% include 'tokenizer.json' %}",
    ],
)
def test_a_models_template_reaches_nothing_but_its_messages(
    template: str,
    tokenizer: HfTokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CVE-2024-34359, CVE-2024-2952, CVE-2026-5760: templates of model files ran as code."""
    monkeypatch.chdir(tmp_path)
    detect(template, ())  # reads the text of the template, and renders nothing
    tokenizer.hf.chat_template = template
    with pytest.raises(InvalidRequest, match="chat template refuses"):
        tokenizer.render_chat(contents("hi"))
    assert not list(tmp_path.iterdir())


def test_what_a_message_says_is_text_to_the_template(tokenizer: HfTokenizer) -> None:
    tokenizer.hf.chat_template = (
        "{% for message in messages %}[{{ message.content }}]{% endfor %}"
        "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    )
    code = "{{ 7 * 7 }}{% for x in range(10**9) %}{% endfor %}{# gone #}"
    tools = [{"type": "function", "function": {"name": "f", "description": code}}]
    rendered = tokenizer.render_chat(contents(code, code), tools)
    text = tokenizer.decode(rendered.tokens)
    assert text.startswith(f"[{code}][{code}]")
    assert text.count(code) == 3
    assert "49" not in text


@pytest.mark.parametrize("name", ["messages", "tools", "chat_template", "tokenize", "conversation"])
def test_what_the_server_tells_the_template_cannot_be_told_otherwise(
    name: str, tokenizer: HfTokenizer
) -> None:
    """CVE-2025-62426: a second check, after the list of names that requests may set."""
    with pytest.raises(InvalidRequest, match="cannot be set by a request"):
        tokenizer.render_chat(contents("hi"), options={name: True})
