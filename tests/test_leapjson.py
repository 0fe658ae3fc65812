"""The public package name ``leapjson``, and the page of settings."""

from __future__ import annotations

from pathlib import Path

from app.__main__ import settings_page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"


def test_the_page_of_settings_is_the_one_that_serve_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page() + "\n"


def test_the_public_names_compile_a_schema() -> None:
    from leapjson import Compiler, JsonSchema, Vocabulary

    vocabulary = Vocabulary([*(bytes([byte]) for byte in range(256)), None], eos_ids=[256])
    state = (
        Compiler(vocabulary).compile(JsonSchema({"type": "array", "items": {"const": 1}})).start()
    )
    assert state.forced() == b"["
    state.accept_bytes(b"[1]")
    assert state.is_complete
