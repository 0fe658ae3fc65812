"""What is promised of answers holds in either order of steps, and with recurrent layers."""

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
    "test_origins",
    "test_looking",
)
WITH_STATES = ("test_engine",)
"""As well as without; other modules say it of each test."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".")[2]
    if module in BOTH_ORDERS:
        metafunc.parametrize("order", ["serial", "overlapped"], indirect=True)
    if module in WITH_STATES:
        metafunc.parametrize("layers", ["attention", "recurrent"], indirect=True)


@pytest.fixture(autouse=True)
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How ``make_engine`` orders steps."""
    chosen = getattr(request, "param", "serial")
    monkeypatch.setattr(harness, "OVERLAP", chosen == "overlapped")


@pytest.fixture(autouse=True)
def layers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the model that ``make_engine`` runs has recurrent layers, too."""
    if getattr(request, "param", "attention") == "recurrent":
        monkeypatch.setattr(harness, "STATES", StateSlots(40, 8))
