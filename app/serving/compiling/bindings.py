"""Constraints whose holes are filled with the texts of a prompt, kept by last use."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from weakref import WeakValueDictionary

from app.core.constraint import Constraint
from app.core.errors import InvalidRequest
from app.core.lru import GrowingLru
from app.core.verbatim import Document, Passage, Source, passages_of
from app.serving.tasks import Tasks, Turns

_LONG = 50_000
"""Characters from which documents are indexed one at a time, tenants in turn: cores stay free."""

_MOST = 4_096
"""Maximum number of cached bindings."""

_Key = tuple[str, int, tuple[tuple[Source, bytes], ...]]
"""Scope, identity of the unbound constraint, and digests of the texts that fill it."""
_Bound = tuple[Constraint, Mapping[Source, Document]]
"""A bound constraint and the documents that fill its holes."""


def _size(binding: tuple[Constraint, _Bound]) -> int:
    constraint, by_source = binding[1]
    documents = {id(each): each for each in by_source.values()}
    return constraint.nbytes + sum(each.nbytes for each in documents.values())


class Bindings:
    """An LRU of bound constraints in front of ``Constraint.bind``. Event loop's thread only.

    Documents are read on threads, each once for requests that come together. What was evicted
    stays alive for the requests that use it.
    """

    def __init__(
        self,
        read: Callable[[Sequence[str], bool], Document],
        *,
        max_bytes: int,
        max_characters: int,
    ) -> None:
        """``read``: from texts, and whether pieces are made of words, to a document.

        ``max_characters``: limit for all texts that one request's values may quote.
        """
        self._read = read
        self._max_characters = max_characters
        self._bindings = GrowingLru[_Key, tuple[Constraint, _Bound]](max_bytes, _size, most=_MOST)
        """Each with its unbound constraint, so that the ``id`` of that is not reused."""
        self._documents = WeakValueDictionary[tuple[str, bytes, bool], Document]()
        """Those in use, by scope, digest of the texts, and whether pieces are made of words."""
        self._binding: dict[_Key, asyncio.Task[_Bound]] = {}
        self.tasks = Tasks()
        self._long = Turns()

    @property
    def nbytes(self) -> int:
        """As last measured."""
        return self._bindings.nbytes

    async def bind(
        self,
        constraint: Constraint,
        passages: Sequence[Passage],
        scope: str = "",
        tenant: str = "",
    ) -> _Bound:
        """``constraint`` with its holes filled from ``passages``, and what fills them.

        Requests of one ``scope`` share what was bound. Raises ``InvalidRequest`` where a text is
        not there, too long, or no text at all, and ``ConstraintError`` where no answer is left.
        """
        sources = dict.fromkeys(hole.source for hole in constraint.holes)
        assert sources, "there is nothing to fill"
        texts = {each: [p.text for p in passages_of(each, passages)] for each in sources}
        length = sum(len(text) for each in texts.values() for text in each)
        if length > self._max_characters:
            raise InvalidRequest(
                f"x-verbatim refers to a text of {length} characters and the limit is "
                f"{self._max_characters}; shorten it, or name a part of the prompt in x-verbatim",
                role="prompt",
            )
        digests = await asyncio.to_thread(_digests, texts) if length > _LONG else _digests(texts)
        key = (scope, id(constraint), digests)
        if (known := self._bindings.get(key)) is not None:
            return known[1]
        task = self._binding.get(key)
        if task is None:
            bind = partial(self._bind, key, constraint, texts)
            work = self._long.run(tenant, bind) if length > _LONG else bind()
            task = self.tasks.start(work, lambda: self._binding.pop(key))
            self._binding[key] = task
        return await asyncio.shield(task)

    async def _bind(
        self, key: _Key, base: Constraint, texts: Mapping[Source, Sequence[str]]
    ) -> _Bound:
        scope, _, digests = key
        names = {source: (scope, digest, source.words) for source, digest in digests}
        known = ((name, self._documents.get(name)) for name in names.values())
        documents = {name: document for name, document in known if document is not None}

        def work() -> _Bound:
            for source, name in names.items():
                if name not in documents:
                    documents[name] = self._read(texts[source], source.words)
            by_source = {source: documents[name] for source, name in names.items()}
            return base.bind(by_source), by_source

        bound = await asyncio.to_thread(work)
        self._documents.update(documents)
        self._bindings.add(key, (base, bound))
        return bound


def _digests(texts: Mapping[Source, Sequence[str]]) -> tuple[tuple[Source, bytes], ...]:
    """Digests of the texts of each source; documents with equal ones are equal."""
    return tuple((source, _digest(each)) for source, each in texts.items())


def _digest(texts: Sequence[str]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        raw = text.encode(errors="surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.digest()
