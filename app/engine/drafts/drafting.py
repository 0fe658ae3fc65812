"""Guesses how an answer goes on: from what earlier answers did, and from the prompt.

At a branch of its constraint an answer mostly does what others did there before, and the values of
an extraction are copied from the prompt. A guess is followed through the leap that it would bring,
to the next branch. Whether it is right is decided by the very draws that plain decoding makes, so
a bad guess costs some computation and never changes an answer (Leviathan et al., "Fast Inference
from Transformers via Speculative Decoding", 2023; drafts that copy: Saxena, "Prompt Lookup
Decoding", 2023).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Protocol
from weakref import WeakKeyDictionary

from app.core.constraint import Constraint, ConstraintState, Vocabulary
from app.core.errors import RejectedToken, RequestError
from app.core.request import EngineRequest
from app.engine.config import EngineConfig
from app.engine.drafts.draft import NO_DRAFT, Draft, Source
from app.engine.drafts.statistics import Memory
from app.engine.leap import Change, KnownChanges
from app.engine.sequence import Sequence

_MOST_MEMORIES = 64
"""Of constraints and scopes, the newest of them, and those that answers still use."""

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


class Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]: ...


class ChangeFinder(Protocol):
    """See ``app.engine.leap.Leaper``."""

    def change(
        self,
        answer: Seq[int],
        start: int,
        state: ConstraintState,
        known: KnownChanges | None = None,
    ) -> Change | None: ...


class Drafter:
    """Drafts for all sequences. What it learns of a constraint lives as long as that does.

    It is learned from requests that want drafts, and used within their scope alone.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        tokenizer: Tokenizer,
        leaper: ChangeFinder,
        config: EngineConfig,
    ) -> None:
        self._spelling = [data or b"" for data in vocabulary.token_bytes]
        self._tokenizer = tokenizer
        self._leaper = leaper
        self._config = config
        self._memories: WeakKeyDictionary[Constraint, dict[str, Memory]] = WeakKeyDictionary()
        """By constraint and scope."""

    def memory(self, sequence: Sequence) -> Memory | None:
        """What earlier answers did; None where no constraint is, or no drafts are wanted."""
        if sequence.memory is None and sequence.state is not None and sequence.request.draft:
            if not self._config.draft_branches:
                return None
            sequence.memory = self._memory(sequence.request)
        return sequence.memory

    def judge(self, sequence: Sequence, source: Source, came: bool) -> None:
        """Learn whether a drafted token came about."""
        if source is Source.COPIED and sequence.memory is not None:
            sequence.memory.copies.update(came)

    def extend(self, sequence: Sequence, running: int) -> Draft:
        """The draft of a sequence whose draft is what its last leap held back.

        ``running`` sequences share the next step. Costs a tokenization or two for each guess.
        """
        config, state, memory = self._config, sequence.state, self.memory(sequence)
        assert state is not None
        most = min(config.max_draft_tokens, sequence.limit - sequence.length - 1)
        draft = sequence.draft if config.draft_held_back else NO_DRAFT
        if most <= 0 or memory is None:
            return draft.cut(most)
        path = _Path(sequence, state, draft)
        try:
            for token in draft.tokens:
                path.accept(token)
            self._walk(path, memory, most, running)
        except (RejectedToken, RequestError):
            pass  # what was drafted before stands
        return path.draft().cut(most)

    def _memory(self, request: EngineRequest) -> Memory:
        assert request.constraint is not None
        memory = self._memories.get(request.constraint, {}).get(request.scope)
        if memory is None:
            self._make_room()
            memory = Memory()
            self._memories.setdefault(request.constraint, {})[request.scope] = memory
        return memory

    def _make_room(self) -> None:
        """Forget the oldest memory where there are as many as may be."""
        while sum(map(len, self._memories.values())) >= _MOST_MEMORIES:
            constraint, memories = next(iter(self._memories.items()))
            del memories[next(iter(memories))]
            if not memories:
                del self._memories[constraint]

    def _walk(self, path: _Path, memory: Memory, most: int, running: int) -> None:
        """Guess, leap, guess, until it becomes unlikely or long."""
        likely, floor = 1.0, self._floor(running, 1)
        while len(path.tokens) < most:
            token, share = memory.likeliest(path.state.place, path.last)
            if likely * share >= floor:
                likely *= share
                length = len(path.tokens)
                goes_on = self._follow(path, memory, token, Source.COUNTED)
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
                if not self._follow(path, memory, each, Source.COPIED):
                    return

    def _floor(self, running: int, width: int) -> float:
        """How likely a guess must be that costs ``width`` tokens, the leap behind it included.

        Each of the step's sequences carries a share of reading the weights: that is what a right
        guess saves. A wrong one costs what was computed for it. See decision 14.
        """
        cost = running * max(width, 1)
        return max(_LEAST, cost / (cost + self._config.spare_tokens))

    def _follow(self, path: _Path, memory: Memory, token: int, source: Source) -> bool:
        """Take a guess and the leap that it brings; whether the path goes on from there."""
        path.accept(token)
        if path.state.is_final:
            return False  # the draw of this token ends the answer, and no pass follows it
        path.push(token, source)
        sequence = path.sequence
        if not (self._config.leap and sequence.request.leap) or not path.state.forced():
            return True
        change = self._change(path, memory)
        if change is None:
            return True
        path.state.accept_bytes(change.text)
        if change.dropped > 1 or path.state.is_final:
            path.pop()  # what follows the guess is computed anew, or nothing is
            return False
        if change.dropped:
            path.pop()
        first = source if change.dropped else Source.LEAPT
        for number, each in enumerate(change.tokens):
            path.push(each, Source.LEAPT if number else first)
        for each in change.held_back.tokens:
            path.accept(each)
            path.push(each, Source.HELD_BACK)
        return True

    def _change(self, path: _Path, memory: Memory) -> Change | None:
        """What the leap from where the path stands would do.

        The budget may yet forbid it: then the draft is a wrong one.
        """
        known = path.sequence.tokens[path.sequence.answer_start :]
        return self._leaper.change([*known, *path.tokens], 0, path.state, memory.changes)

    def _copied(self, path: _Path) -> list[int]:
        """Tokens with which the prompt goes on from the value that the answer is in."""
        value = path.value(self._spelling)
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
        return self._split(path.ending(_WINDOW), rest)

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

    __slots__ = ("_begun", "_draft", "sequence", "sources", "state", "tokens")

    def __init__(self, sequence: Sequence, state: ConstraintState, draft: Draft) -> None:
        self.sequence = sequence
        self.state = state
        """That of the sequence, and from the first step on a scout. Goes on by ``accept``."""
        self.tokens = list(draft.tokens)
        self.sources = list(draft.sources)
        self._draft = draft
        self._begun = False

    @property
    def last(self) -> int:
        return self.tokens[-1] if self.tokens else self.sequence.tokens[-1]

    def accept(self, token: int) -> None:
        if not self._begun:
            self.state = self.state.copy(work=_WORK)
            self._begun = True
        self.state.accept(token)

    def draft(self) -> Draft:
        if len(self.tokens) == len(self._draft.tokens):
            return self._draft
        return Draft(tuple(self.tokens), tuple(self.sources))

    def ending(self, count: int) -> list[int]:
        """The last tokens of the answer with the path, at most ``count``."""
        known = self.sequence.tokens
        first = max(self.sequence.answer_start, len(known) - count)
        return [*known[first:], *self.tokens][-count:]

    def value(self, spelling: Seq[bytes]) -> bytes:
        """What the answer has of a string that it is in: the end of what is behind a quote."""
        value = b""
        for token in reversed(self.ending(_WINDOW * 3)):
            value = spelling[token] + value
            quote = value.rfind(b'"', 0, len(spelling[token]))
            if quote >= 0:
                value = value[quote + 1 :]
                break
            if len(value) >= _LONGEST_MATCH:
                break
        return value[-_LONGEST_MATCH:]

    def push(self, token: int, source: Source) -> None:
        self.tokens.append(token)
        self.sources.append(source)

    def pop(self) -> None:
        self.tokens.pop()
        self.sources.pop()

    def cut(self, length: int) -> None:
        """Forget what was followed from there; the state is of no use afterwards."""
        del self.tokens[length:], self.sources[length:]
