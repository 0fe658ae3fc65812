from __future__ import annotations

from pathlib import Path

from app.server.settings import Settings

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_readme_lists_every_setting_with_its_meaning() -> None:
    text = README.read_text(encoding="utf-8")
    for name, field in Settings.model_fields.items():
        lines = [line for line in text.splitlines() if f"`LEAPJSON_{name.upper()}`" in line]
        assert lines, f"LEAPJSON_{name.upper()} is not in the README"
        meaning = " ".join(str(field.description).split())
        assert any(meaning in line for line in lines)
