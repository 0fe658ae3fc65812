"""Seeded bfloat16 answers, compared bit by bit; ``tests.model.same_bits`` compares many more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.cpu.test_layers import FITS
from tests.model.same_bits import compare, make_runner, schemas
from tests.wide import many


@FITS
@pytest.mark.parametrize("quantize", [None, "int8", "int4"])
def test_no_bit_of_an_answer_depends_on_batches_chunks_drafts_or_cache_contents(
    quantize: str | None, tmp_path: Path
) -> None:
    outcome = compare(make_runner(tmp_path, quantize), many(60, 2), longest=100, number=2)
    assert outcome.differ == 0
    assert outcome.rows > 200
    assert outcome.drafted
    assert outcome.leapt
    assert outcome.cached
    assert outcome.put_back


@FITS
def test_no_bit_depends_on_batches_for_enums_quotes_and_unique_items(tmp_path: Path) -> None:
    outcome = compare(
        make_runner(tmp_path), many(12, 2), number=1, longest=40, constraints=schemas()
    )
    assert outcome.differ == 0
    assert outcome.rows > 200
    assert outcome.drafted
    assert outcome.leapt
