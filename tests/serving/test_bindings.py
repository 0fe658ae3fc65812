"""The cache of bound constraints: sharing, scopes and eviction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.core.constraint import Relaxation
from app.core.errors import InvalidRequest
from app.core.verbatim import Found, Hole, Passage, Source
from app.serving.compiling.bindings import Bindings

USER = Source()


@dataclass(eq=False)
class FakeDocument:
    texts: Sequence[str]
    nbytes: int = 100

    def find(self, value: str) -> Found | None:
        return None


@dataclass(eq=False)
class FakeHoles:
    """A constraint with a size, and with the documents to which it was bound."""

    holes: Sequence[Hole] = (Hole(USER),)
    documents: Mapping[Source, Any] = field(default_factory=dict)
    nbytes: int = 10
    num_states: int = 0
    num_masks: int = 0
    relaxed: Sequence[Relaxation] = ()

    def start(self) -> Any:
        raise NotImplementedError

    def bind(self, documents: Mapping[Source, Any]) -> FakeHoles:
        return FakeHoles((), documents)


class Reader:
    def __init__(self) -> None:
        self.read: list[tuple[str, ...]] = []

    def __call__(self, texts: Sequence[str], words: bool) -> FakeDocument:
        self.read.append(tuple(texts))
        return FakeDocument(texts)


def passages(*texts: str) -> list[Passage]:
    return [Passage(f"messages[{number}]", text) for number, text in enumerate(texts)]


def bindings(read: Reader, max_bytes: int = 1000) -> Bindings:
    return Bindings(read, max_bytes=max_bytes, max_characters=50)


async def test_equal_texts_are_bound_once() -> None:
    read, base = Reader(), FakeHoles()
    cache = bindings(read)
    together = await asyncio.gather(*(cache.bind(base, passages("a", "b")) for _ in range(3)))
    again = await cache.bind(base, passages("a", "b"))
    assert {id(each) for each in together} == {id(again)}
    assert read.read == [("a", "b")]
    other = await cache.bind(base, passages("ab"))
    assert other is not again, "the same text in other pieces is another document"


async def test_another_constraint_shares_the_document_within_a_scope() -> None:
    read = Reader()
    cache = bindings(read)
    first = await cache.bind(FakeHoles(), passages("a"))
    second = await cache.bind(FakeHoles(), passages("a"))
    assert first[1][USER] is second[1][USER]
    assert len(read.read) == 1
    await cache.bind(FakeHoles(), passages("a"), "another tenant")
    assert len(read.read) == 2


async def test_the_least_recently_used_goes_when_there_are_too_many_bytes() -> None:
    read, base = Reader(), FakeHoles()
    cache = bindings(read, max_bytes=250)
    first = await cache.bind(base, passages("a"))
    await cache.bind(base, passages("b"))
    assert await cache.bind(base, passages("a")) is first
    await cache.bind(base, passages("c"))
    assert len(cache._bindings) == 2
    assert cache.nbytes == 220
    assert await cache.bind(base, passages("a")) is first
    assert isinstance(first[0], FakeHoles)
    first[0].nbytes = 1000  # it alone is now larger than the limit
    assert await cache.bind(base, passages("a")) is not first


async def test_nothing_else_is_dropped_for_one_that_outgrows_the_whole_cache() -> None:
    cache, base = bindings(Reader(), max_bytes=250), FakeHoles()
    kept = await cache.bind(base, passages("a"))
    grown, _ = await cache.bind(base, passages("b"))
    assert isinstance(grown, FakeHoles)
    grown.nbytes = 1000
    await cache.bind(base, passages("c"))
    assert await cache.bind(base, passages("a")) is kept


async def test_a_text_that_is_too_long_is_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidRequest, match="51 characters and the limit is 50"):
        await bindings(Reader()).bind(FakeHoles(), passages("x" * 51))
