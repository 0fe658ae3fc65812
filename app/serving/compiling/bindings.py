"""Constraints whose holes are filled with the texts of a prompt, kept by last use."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from app.core.constraint import Constraint
from app.core.errors import InvalidRequest
from app.core.verbatim import Document, Passage, Source, passages_of
from app.serving.tasks import Tasks

_LONG = 50_000
"""Characters from which documents are indexed one at a time, to keep cores free."""

_MOST = 4_096
"""Maximum number of cached bindings."""
_GROWING = 64
"""Number of the latest bindings, which are measured again."""

_Key = tuple[str, int, tuple[tuple[Source, bytes], ...]]
"""Scope, identity of the unbound constraint, and digests of the texts that fill it."""
_Bound = tuple[Constraint, Mapping[Source, Document]]
"""A bound constraint and the documents that fill its holes."""


@dataclass(slots=True)
class _Entry:
    base: Constraint
    """A reference, so that the constraint's ``id`` is not reused."""
    bound: _Bound
    nbytes: int = 0
    """As last measured: a constraint grows while its states are visited."""

    def measure(self) -> int:
        """By how much it has grown."""
        constraint, by_source = self.bound
        documents = {id(each): each for each in by_source.values()}
        now = constraint.nbytes + sum(each.nbytes for each in documents.values())
        grown, self.nbytes = now - self.nbytes, now
        return grown


class Bindings:
    """An LRU of bound constraints in front of ``Constraint.bind``. Event loop's thread only.

    Documents are read on threads, each once for requests that come together. Bounded by bytes,
    which are measured whenever something is bound; what was dropped stays alive for the requests
    that use it.
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
        self._max_bytes = max_bytes
        self._max_characters = max_characters
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._binding: dict[_Key, asyncio.Task[_Bound]] = {}
        self._tasks = Tasks()
        self._long = asyncio.Semaphore(1)
        self.nbytes = 0
        """As last measured."""

    async def close(self) -> None:
        """Cancel what is still being bound."""
        await self._tasks.close()

    async def bind(
        self, constraint: Constraint, passages: Sequence[Passage], scope: str = ""
    ) -> tuple[Constraint, Mapping[Source, Document]]:
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
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            self._evict()
            if key in self._entries:
                return entry.bound
        task = self._binding.get(key)
        if task is None:
            work = self._bind(key, constraint, texts, length)
            task = self._tasks.start(work, lambda: self._binding.pop(key))
            self._binding[key] = task
        return await asyncio.shield(task)

    async def _bind(
        self, key: _Key, base: Constraint, texts: Mapping[Source, Sequence[str]], length: int
    ) -> _Bound:
        known = self._known_documents(key)
        documents: dict[tuple[bytes, bool], Document] = {}

        def work() -> _Bound:
            for source, digest in key[2]:
                name = digest, source.words
                if name not in documents:
                    documents[name] = known.get(name) or self._read(texts[source], source.words)
            by_source = {source: documents[digest, source.words] for source, digest in key[2]}
            return base.bind(by_source), by_source

        async with self._long if length > _LONG else contextlib.nullcontext():
            bound = await asyncio.to_thread(work)
        self._entries[key] = _Entry(base, bound)
        self._evict()
        return bound

    def _known_documents(self, key: _Key) -> dict[tuple[bytes, bool], Document]:
        """Documents with the same texts from other bindings in the same scope."""
        wanted = {(digest, source.words) for source, digest in key[2]}
        known: dict[tuple[bytes, bool], Document] = {}
        for (scope, _, digests), entry in self._entries.items():
            names = {source: (digest, source.words) for source, digest in digests}
            if scope == key[0] and not wanted.isdisjoint(names.values()):
                known.update({names[s]: each for s, each in entry.bound[1].items()})
        return known

    def _evict(self) -> None:
        """Drop the least recently used until the bounds hold.

        Only the latest are measured: those that still grow. One that is above the bound by itself
        goes, too, and is bound afresh when it is asked for again.
        """
        for entry in islice(reversed(self._entries.values()), _GROWING):
            self.nbytes += entry.measure()
        while self.nbytes > self._max_bytes or len(self._entries) > _MOST:
            _, entry = self._entries.popitem(last=False)
            self.nbytes -= entry.nbytes


def _digests(texts: Mapping[Source, Sequence[str]]) -> tuple[tuple[Source, bytes], ...]:
    """Digests of the texts of each source; documents with equal ones are equal."""
    return tuple((source, _digest(each)) for source, each in texts.items())


def _digest(texts: Sequence[str]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        raw = text.encode(errors="surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.digest()
