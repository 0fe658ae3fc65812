"""Fixtures for all tests: the data beside the checkout, where it is there."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if not Path("/dev/nvidia0").exists():
    # Before anything imports triton: its own library functions are compiled or interpreted then.
    os.environ.setdefault("TRITON_INTERPRET", "1")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of data shared between checkouts; tests that need it skip where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs ../shared/data, which is not here")
    return SHARED_DATA


@pytest.fixture(scope="session")
def tokenizer_json(shared_data: Path) -> Callable[[str], dict[str, Any]]:
    """The parsed ``tokenizer.json`` of gpt2, llama3_2 or qwen2_5."""

    def load(name: str) -> dict[str, Any]:
        path = shared_data / "tokenizers" / name / "tokenizer.json.gz"
        content: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        return content

    return load
