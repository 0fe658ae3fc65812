"""Guesses how an answer goes on: from what earlier answers did, and from the prompt.

At a branch of its constraint an answer mostly does what others did there before, and the values of
an extraction are copied from the prompt. A guess is followed through the leap that it would bring,
to the next branch. Whether it is right is decided by the very draws that plain decoding makes, so
a bad guess costs some computation and never changes an answer (Leviathan et al., "Fast Inference
from Transformers via Speculative Decoding", 2023; drafts that copy: Saxena, "Prompt Lookup
Decoding", 2023).
"""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

from app.core.constraint import Constraint, ConstraintState, Vocabulary
from app.core.errors import RejectedToken, RequestError
from app.engine.config import EngineConfig
from app.engine.draft import NO_DRAFT, Draft, Source
from app.engine.leap import WINDOW_TOKENS, Leap
from app.engine.sequence import Sequence

_MOST_MEMORIES = 64
"""Of constraints and scopes, the newest of them; one takes up to 3 MB."""

_MOST_CONTEXTS = 4096
"""Branches of one constraint that are remembered, the newest of them."""

_MOST_LEAPS = 2048

_MOST_WAYS = 8
"""Ways on from a branch that are counted."""

_MEMORY = 64
"""Answers after which a branch's counts are halved: what is common changes."""

_WORK = 500
"""Steps of work that one draft may cost where it comes to states that nobody has visited."""

_LEAST = 0.15
"""Nothing less likely is drafted, however cheap: its masks and its draw cost something, too."""

_SHORTEST_COPY = 3
"""Bytes of a value from which its place in the prompt is looked for."""
_LONGEST_MATCH = 24
_LONGEST_COPY = 48
_COPIED_FROM = 1 << 16
"""Bytes at the prompt's end that are looked through: it is done for every draft."""
_WINDOW = 4
"""Tokens before a copy that are tokenized with it."""
_EVERY_SO_OFTEN = 16
"""Where copies mostly failed, one in so many is tried all the same."""


class Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]: ...


class LeapProposer(Protocol):
    """See ``app.engine.leap.Leaper``."""

    def propose(
        self, answer: Seq[int], start: int, state: ConstraintState, limit: int, *, finish: bool
    ) -> Leap | None: ...


class Drafter:
    """Drafts for all sequences. What it learns of a constraint lives as long as that does.

    It is learned from requests that want drafts, and used within their scope alone.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        tokenizer: Tokenizer,
        leaper: LeapProposer,
        config: EngineConfig,
    ) -> None:
        self._spelling = [data or b"" for data in vocabulary.token_bytes]
        self._tokenizer = tokenizer
        self._leaper = leaper
        self._config = config
        self._memories: WeakKeyDictionary[Constraint, dict[str, _Memory]] = WeakKeyDictionary()
        """By constraint and scope."""

    def note(self, sequence: Sequence, token: int) -> None:
        """Remember that ``token`` is drawn where the answer stands."""
        if self._config.draft_branches and sequence.request.draft and sequence.state is not None:
            self._memory(sequence).note(sequence.state.place, sequence.tokens[-1], token)

    def judge(self, sequence: Sequence, source: Source, came: bool) -> None:
        """Learn whether a drafted token came about."""
        if source is Source.COPIED:
            self._memory(sequence).copies.update(came)

    def extend(self, sequence: Sequence, running: int) -> Draft:
        """The draft of a sequence whose draft is what its last leap held back.

        ``running`` sequences share the next step. Costs a tokenization or two for each guess.
        """
        config, state = self._config, sequence.state
        assert state is not None
        most = min(config.max_draft_tokens, sequence.limit - sequence.length - 1)
        draft = sequence.draft if config.draft_held_back else NO_DRAFT
        if most <= 0 or not config.draft_branches or not sequence.request.draft:
            return draft.cut(most)
        path = _Path(sequence, state.copy(work=_WORK), draft)
        try:
            for token in draft.tokens:
                path.state.accept(token)
            self._walk(path, self._memory(sequence), most, running)
        except (RejectedToken, RequestError):
            pass  # what was drafted before stands
        return Draft(tuple(path.tokens), tuple(path.sources)).cut(most)

    def _memory(self, sequence: Sequence) -> _Memory:
        request = sequence.request
        assert request.constraint is not None
        memory = self._memories.get(request.constraint, {}).get(request.scope)
        if memory is None:
            self._make_room()
            memory = _Memory()
            self._memories.setdefault(request.constraint, {})[request.scope] = memory
        return memory

    def _make_room(self) -> None:
        """Forget the oldest memory where there are as many as may be."""
        while sum(map(len, self._memories.values())) >= _MOST_MEMORIES:
            constraint, memories = next(iter(self._memories.items()))
            del memories[next(iter(memories))]
            if not memories:
                del self._memories[constraint]

    def _walk(self, path: _Path, memory: _Memory, most: int, running: int) -> None:
        """Guess, leap, guess, until it becomes unlikely or long."""
        likely, floor = 1.0, self._floor(running, 1)
        while len(path.tokens) < most:
            token, share = memory.likeliest(path.state.place, path.last)
            if likely * share >= floor:
                likely *= share
                length = len(path.tokens)
                goes_on = self._follow(path, token, Source.COUNTED)
                if likely < self._floor(running, len(path.tokens) - length):
                    path.cut(length + (path.tokens[length] == token))  # the guess without its leap
                    return
                if not goes_on:
                    return
                continue
            if likely * memory.copies.share < floor and not memory.copies.try_again():
                return
            copied = self._copied(path)
            if not copied:
                return
            for each in copied:
                likely *= memory.copies.share
                if not self._follow(path, each, Source.COPIED):
                    return

    def _floor(self, running: int, width: int) -> float:
        """How likely a guess must be that costs ``width`` tokens, the leap behind it included.

        Each of the step's sequences carries a share of reading the weights: that is what a right
        guess saves. A wrong one costs what was computed for it. See decision 14.
        """
        cost = running * max(width, 1)
        return max(_LEAST, cost / (cost + self._config.spare_tokens))

    def _follow(self, path: _Path, token: int, source: Source) -> bool:
        """Take a guess and the leap that it brings; whether the path goes on from there."""
        path.state.accept(token)
        if path.state.is_final:
            return False  # the draw of this token ends the answer, and no pass follows it
        path.push(token, source)
        sequence = path.sequence
        if not (self._config.leap and sequence.request.leap):
            return True
        leap = self._leap(path)
        if leap is None:
            return True
        path.state.accept_bytes(leap.added)
        if leap.dropped > 1 or path.state.is_final:
            path.pop()  # what follows the guess is computed anew, or nothing is
            return False
        if leap.dropped:
            path.pop()
        first = source if leap.dropped else Source.LEAPT
        for number, each in enumerate(leap.tokens):
            path.push(each, Source.LEAPT if number else first)
        for each in leap.draft:
            path.state.accept(each)
            path.push(each, Source.HELD_BACK)
        return True

    def _leap(self, path: _Path) -> _Consequence | None:
        """The leap from where the path stands, as it was when an answer first came by here.

        It depends on the state and the tokens before it. The budget may yet forbid it: then the
        draft is a wrong one.
        """
        leaps = self._memory(path.sequence).leaps
        key = (path.state.place, tuple(path.ending(WINDOW_TOKENS)))
        known = leaps.get(key, _UNKNOWN)
        if not isinstance(known, _Unknown):
            return known
        sequence = path.sequence
        proposed = self._leaper.propose(
            [*sequence.tokens, *path.tokens],
            sequence.answer_start,
            path.state,
            sequence.limit,
            finish=sequence.finishes_in_budget,
        )
        leap = None if proposed is None else _Consequence.of(proposed)
        if leap is not None or not path.state.forced():  # else the budget forbids it, just now
            if len(leaps) >= _MOST_LEAPS:
                del leaps[next(iter(leaps))]
            leaps[key] = leap
        return leap

    def _copied(self, path: _Path) -> list[int]:
        """Tokens with which the prompt goes on from the value that the answer is in."""
        before = path.ending(_WINDOW * 3)
        written = b"".join([self._spelling[token] for token in before])
        value = written[written.rfind(b'"') + 1 :][-_LONGEST_MATCH:]
        if len(value) < _SHORTEST_COPY:
            return []
        prompt = path.sequence.prompt_ending(self._spelling, _COPIED_FROM)
        at = prompt.rfind(value)
        if at < 0:
            return []
        at += len(value)
        rest = prompt[at : at + _LONGEST_COPY]
        for end in (b"\n", b'"', b"<"):
            rest = rest.partition(end)[0]
        return self._split(before[-_WINDOW:], rest)

    def _split(self, before: Seq[int], rest: bytes) -> list[int]:
        """``rest`` as the tokenizer splits it behind ``before``; without its unsure last token."""
        text = b"".join([self._spelling[token] for token in before]) + rest
        try:
            tokens = self._tokenizer.encode(text.decode())
        except UnicodeDecodeError:
            return []
        return tokens[len(before) : -1] if tokens[: len(before)] == list(before) else []


class _Path:
    """A way on from a sequence, as far as it has been followed."""

    def __init__(self, sequence: Sequence, state: ConstraintState, draft: Draft) -> None:
        self.sequence = sequence
        self.state = state
        self.tokens = list(draft.tokens)
        self.sources = list(draft.sources)

    @property
    def last(self) -> int:
        return self.tokens[-1] if self.tokens else self.sequence.tokens[-1]

    def ending(self, count: int) -> list[int]:
        """The last tokens of the answer with the path, at most ``count``."""
        known = self.sequence.tokens
        first = max(self.sequence.answer_start, len(known) - count)
        return [*known[first:], *self.tokens][-count:]

    def push(self, token: int, source: Source) -> None:
        self.tokens.append(token)
        self.sources.append(source)

    def pop(self) -> None:
        self.tokens.pop()
        self.sources.pop()

    def cut(self, length: int) -> None:
        """Forget what was followed from there; the state is of no use afterwards."""
        del self.tokens[length:], self.sources[length:]


@dataclass(frozen=True, slots=True)
class _Consequence:
    """A leap without its state, which would keep the constraint alive that it is learned for."""

    dropped: int
    tokens: tuple[int, ...]
    added: bytes
    draft: tuple[int, ...]

    @staticmethod
    def of(leap: Leap) -> _Consequence:
        return _Consequence(leap.dropped, leap.tokens, b"".join(leap.added), leap.draft)


class _Unknown:
    """Stands for a leap that was not looked for yet: None says that there is none."""


_UNKNOWN = _Unknown()


class _Rate:
    """How often a kind of guess came true lately."""

    def __init__(self, share: float) -> None:
        self.share = share
        self._refused = 0

    def update(self, came: bool) -> None:
        self.share += (came - self.share) / 16

    def try_again(self) -> bool:
        self._refused = (self._refused + 1) % _EVERY_SO_OFTEN
        return self._refused == 0


class _Memory:
    """What earlier answers of one constraint did at its branches."""

    def __init__(self) -> None:
        self.copies = _Rate(0.75)
        self.leaps: dict[tuple[Hashable, tuple[int, ...]], _Consequence | None] = {}
        """By where they begin and the tokens before it; the newest of them."""
        self._counts: dict[tuple[Hashable, int], dict[int, int]] = {}

    def note(self, place: Hashable, last: int, token: int) -> None:
        key = (place, last)
        counts = self._counts.get(key)
        if counts is None:
            if len(self._counts) >= _MOST_CONTEXTS:
                del self._counts[next(iter(self._counts))]
            counts = self._counts[key] = {}
        counts[token] = counts.get(token, 0) + 1
        if len(counts) > _MOST_WAYS or counts[token] > _MEMORY:
            self._counts[key] = {each: n // 2 for each, n in counts.items() if n > 1}

    def likeliest(self, place: Hashable, last: int) -> tuple[int, float]:
        """The commonest token there, and its share; nothing is ever certain."""
        counts = self._counts.get((place, last))
        if not counts:
            return -1, 0.0
        token = max(counts, key=counts.__getitem__)
        return token, counts[token] / (sum(counts.values()) + 1)
