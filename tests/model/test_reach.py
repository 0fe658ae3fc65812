"""The most popular kinds of models run or are refused as docs/models.md says."""

from __future__ import annotations

import pytest

from tests.model.reach.kinds import NOT_OF_TEXT, POPULAR, every_kind
from tests.model.reach.page import PAGE, is_of_this_version, promises, row, rows_of, written
from tests.model.reach.trial import Outcome, attempt

ON_PAGE = rows_of(PAGE.read_text())


@pytest.mark.parametrize("kind", POPULAR)
def test_a_popular_kind_does_what_its_page_says(kind: str) -> None:
    if kind not in every_kind():
        pytest.skip("the installed transformers lacks this kind")
    outcome = attempt(kind)  # raises if it neither runs nor is refused
    if is_of_this_version(PAGE.read_text()):
        assert promises(ON_PAGE[kind], outcome), row(outcome)


def test_the_page_has_every_kind_of_the_transformers_that_wrote_it() -> None:
    if not is_of_this_version(PAGE.read_text()):
        pytest.skip("the page is of another version of transformers")
    assert sorted(ON_PAGE) == every_kind()


def test_a_page_promises_class_and_error() -> None:
    promised = "| `a` | A | 1e-4 |"
    assert promises(promised, Outcome("a", model="A", error=9e-5))
    assert not promises(promised, Outcome("a", model="A", error=1.1e-4))
    assert not promises(promised, Outcome("a", model="B", error=9e-5))
    assert not promises(promised, Outcome("a", refusal="no"))


def test_a_page_counts_what_runs_and_leaves_encoder_decoders_out() -> None:
    outcomes = [
        Outcome("b", model="B", error=3e-6),
        Outcome("a", model="A", error=2e-4),
        Outcome("d", refusal="d is an encoder-decoder; serve a causal LM"),
        Outcome("c", refusal="no | such"),
        Outcome("blip", refusal="wants an image"),
    ]
    page = written(outcomes)
    assert "**2 of 4 kinds run (50%), 2 are refused; 1 more are encoder-decoders.**" in page
    assert "2 of the other 3 run (67%)" in page
    assert rows_of(page) == {
        "a": "| `a` | A | 1e-3 |",
        "b": "| `b` | B | 1e-5 |",
        "blip": f"| `blip` | wants an image | {NOT_OF_TEXT['blip']} |",
        "c": "| `c` | no / such |",
        "d": "| `d` | refused |",
    }
