"""Test data matches its README; Llama's tokenizer is found through its environment variable."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import datasets

README = (datasets.DATA / "README.md").read_text(encoding="utf-8")
SUMS = dict(re.findall(r"^\| `(.*)` \| `([0-9a-f]{64})` \|$", README, re.M))


@pytest.fixture
def looked_for_again() -> Iterator[None]:
    datasets.tokenizers.cache_clear()
    yield
    datasets.tokenizers.cache_clear()


@pytest.mark.parametrize("name", SUMS)
def test_what_is_packed_is_what_the_readme_names(name: str) -> None:
    content = datasets.unpacked(datasets.DATA / f"{name}.xz")
    assert hashlib.sha256(content).hexdigest() == SUMS[name]


def test_every_folder_of_data_is_in_the_readme_and_has_its_licence() -> None:
    packed = {path.parent for path in datasets.DATA.rglob("*") if path.suffix in (".xz", ".zip")}
    assert len(packed) == 4
    for folder in packed:
        assert f"| `{folder.relative_to(datasets.DATA)}/` |" in README
        assert (folder / "LICENSE").exists()


def test_the_suite_and_maskbench_are_whole() -> None:
    suite = datasets.official_suite()
    assert {draft: len(files) for draft, files in suite.items()} == {
        "draft2020-12": 80, "draft7": 64,
    }  # fmt: skip
    assert all(
        case["tests"] for files in suite.values() for cases in files.values() for case in cases
    )
    cases = datasets.maskbench()
    assert len(cases) == 2_263
    assert [case["id"] for case in cases] == sorted(case["id"] for case in cases)
    drawn = datasets.maskbench(count=5, seed=1)
    assert len(drawn) == 5
    assert all(case in cases for case in drawn)


def test_llamas_tokenizer_is_used_where_the_environment_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_for_again: None
) -> None:
    (tmp_path / "tokenizer.json.gz").write_bytes(gzip.compress(b"{}"))
    monkeypatch.setenv("LLAMA3_2_TOKENIZER", str(tmp_path))
    assert list(datasets.tokenizers()) == ["gpt2", "qwen2_5", "llama3_2"]
    assert datasets.tokenizer_json(datasets.tokenizers()["llama3_2"]) == b"{}"
    (tmp_path / "tokenizer.json").write_bytes(b"[]")
    assert datasets.tokenizer_json(tmp_path) == b"[]"


def test_without_it_the_others_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_for_again: None
) -> None:
    monkeypatch.setenv("LLAMA3_2_TOKENIZER", str(tmp_path / "nowhere"))
    assert list(datasets.tokenizers()) == ["gpt2", "qwen2_5"]
    with pytest.raises(FileNotFoundError):
        datasets.tokenizer_json(tmp_path)
