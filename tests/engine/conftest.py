"""Fixtures that run tests with serial and overlapped steps, and with recurrent layers."""

from __future__ import annotations

import pytest

from app.core.cache import StateSlots
from tests.engine import harness

BOTH_ORDERS = (
    "test_choices",
    "test_predictions",
    "test_same_answers",
    "test_engine",
    "test_stop_tokens",
    "test_leap",
    "test_token_sources",
)
WITH_STATES = ("test_engine",)
"""Modules whose tests run with and without recurrent layers. Tests of other modules choose."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".")[2]
    if module in BOTH_ORDERS:
        metafunc.parametrize("order", ["serial", "overlapped"], indirect=True)
    if module in WITH_STATES:
        metafunc.parametrize("layers", ["attention", "recurrent"], indirect=True)


@pytest.fixture(autouse=True)
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order of the steps in ``make_engine``: serial or overlapped."""
    chosen = getattr(request, "param", "serial")
    monkeypatch.setattr(harness, "OVERLAP", chosen == "overlapped")


@pytest.fixture(autouse=True)
def layers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the model of ``make_engine`` has recurrent layers as well."""
    if getattr(request, "param", "attention") == "recurrent":
        monkeypatch.setattr(harness, "STATES", StateSlots(40, 8))
