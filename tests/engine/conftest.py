"""What is promised of answers holds in either order of steps."""

from __future__ import annotations

import pytest

from tests.engine import harness

BOTH_ORDERS = ("test_same_answers", "test_engine", "test_stop_tokens", "test_leap")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in BOTH_ORDERS:
        metafunc.parametrize("order", ["serial", "overlapped"], indirect=True)


@pytest.fixture(autouse=True)
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How ``make_engine`` orders steps."""
    chosen = getattr(request, "param", "serial")
    monkeypatch.setattr(harness, "OVERLAP", chosen == "overlapped")
