"""A fixture that calls functions of the page in Node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.page.toolchain import need_packages, node


@pytest.fixture
def called(tmp_path: Path) -> Any:
    """Calls functions of the page through calls.mjs; a call is ``[name, *arguments]``."""
    need_packages()

    def call(*calls: list[Any]) -> list[Any]:
        path = tmp_path / "calls.json"
        path.write_text(json.dumps(calls))
        results: list[Any] = json.loads(node(Path(__file__).with_name("calls.mjs"), path, tmp_path))
        return results

    return call
