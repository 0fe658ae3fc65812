from __future__ import annotations

import pytest

from app.core import model_name
from app.core.errors import UnsupportedModel
from app.core.model_name import gguf_stem, is_gguf, require_gguf_reader


@pytest.mark.parametrize(
    "name", ["a.gguf", "models/a.gguf", "owner/repository:a.gguf", "owner/repository:folder/a.gguf"]
)
def test_a_gguf_file_is_known_by_its_name(name: str) -> None:
    assert is_gguf(name)
    assert gguf_stem(name) == "a"


def test_folders_and_names_of_the_hub_are_none() -> None:
    assert not is_gguf("models/a")
    assert not is_gguf("owner/a-GGUF")


def test_an_old_transformers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_name, "version", lambda package: "5.17.0")
    with pytest.raises(UnsupportedModel, match=r"transformers>=5\.23; here is 5\.17\.0"):
        require_gguf_reader()
    monkeypatch.setattr(model_name, "version", lambda package: "6.0.0.dev0")
    require_gguf_reader()
