"""Law 2 on random schemas; ``python -m tests.conformance.walks`` does the same at length."""

from __future__ import annotations

import random

import pytest

from app.constraint import Compiler
from app.text import Vocabulary
from tests.conformance.tokenizers import tokenizer
from tests.conformance.walks import BruteForce, Report, walks
from tests.e2e.schemas import random_schema
from tools import datasets

PIECES = [
    b'{"', b'": ', b'", "', b'"}', b'": "', b"na", b"name", b"12", b"[]", b'["', b'"]', b", ",
    b"null", b"}}", b'"a', b'a"', b"\\u", b"\\ud83d", b"\xf0\x9f", "é".encode(), b"-0", b"0.",
    b"T1",
]  # fmt: skip


def small_vocabulary() -> Vocabulary:
    """All single bytes, tokens across every border, one end of sequence."""
    singles = [bytes([byte]) for byte in range(256)]
    return Vocabulary([*singles, *PIECES, None], eos_ids=[256 + len(PIECES)])


def test_every_walk_over_random_schemas_ends_valid_within_its_budget() -> None:
    vocabulary = small_vocabulary()
    compiler, check = Compiler(vocabulary), BruteForce(vocabulary)
    total = Report()
    for seed in range(30):
        schema = random_schema(random.Random(seed))
        total.add(walks(vocabulary, compiler, schema, seed, times=6, check=check))
    assert total.failures == []
    assert total.counts["walks"] == 180
    assert total.counts["masks compared"] == 90


@pytest.mark.parametrize("name", datasets.tokenizers())
def test_walks_over_maskbench_end_valid_within_their_budget(name: str) -> None:
    cases = datasets.maskbench(count=12, seed=len(name))
    vocabulary = tokenizer(name).vocabulary
    compiler, check = Compiler(vocabulary), BruteForce(vocabulary)
    total = Report()
    for seed, case in enumerate(cases):
        total.add(walks(vocabulary, compiler, case["schema"], seed, times=2, check=check))
        total.add(walks(vocabulary, compiler, case["schema"], seed + 100, times=6))
    assert total.failures == []
    assert total.counts["masks compared"] >= 9
