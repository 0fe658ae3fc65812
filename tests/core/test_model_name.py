from __future__ import annotations

import pytest

from app.core.model_name import gguf_stem, is_gguf


@pytest.mark.parametrize(
    "name", ["a.gguf", "models/a.gguf", "owner/repository:a.gguf", "owner/repository:folder/a.gguf"]
)
def test_a_gguf_file_is_known_by_its_name(name: str) -> None:
    assert is_gguf(name)
    assert gguf_stem(name) == "a"


def test_folders_and_names_of_the_hub_are_none() -> None:
    assert not is_gguf("models/a")
    assert not is_gguf("owner/a")
