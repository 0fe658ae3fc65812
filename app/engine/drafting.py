"""Drafts the continuation of an answer, from three sources.

At a branch of its constraint an answer mostly continues as earlier answers did, and the values of
an extraction are copied from the prompt; a verbatim value has a known place there. The client may
send a prediction. A guess is followed through the leap after it, to the next branch. It is verified
by the same draws that plain decoding makes, so a wrong guess costs some computation and never
changes an answer (Leviathan et al., "Fast Inference from Transformers via Speculative Decoding",
2023; drafts that copy: Saxena, "Prompt Lookup Decoding", 2023).
"""

from __future__ import annotations

import re
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from app.core.constraint import Constraint, ConstraintState
from app.core.errors import RejectedToken, RequestError
from app.core.request import EngineRequest
from app.engine.config import EngineConfig
from app.engine.draft import NO_DRAFT, Draft, Source
from app.engine.draft_statistics import DraftStatistics
from app.engine.leap import Leaper
from app.engine.prediction import LONGEST_ENDING, Prediction
from app.engine.sequence import Sequence

_MOST_STATISTICS = 64
"""Maximum number of statistics, one for each constraint and scope; the oldest are dropped."""

_WORK = 500
"""Maximum steps of work of one draft in states that were not visited before."""

_LEAST = 0.15
"""Minimum probability of a guess: even in a cheap step, its mask and its draw cost something."""

_SHORTEST_COPY = 3
"""Minimum bytes of a value before its place in the prompt is looked up."""
_LONGEST_MATCH = 24
_LONGEST_COPY = 48
_LONGEST_QUOTE = 160
"""Maximum bytes copied for a verbatim value, whose place in the prompt is known."""
_COPIED_FROM = 1 << 16
"""Bytes at the prompt's end that are searched for every draft."""
_INSIDE_CHARACTER = re.compile(rb"[\x80-\xbf]")
_WINDOW = 4
"""Tokens before a copy that are tokenized with it."""


class Drafter:
    """Drafts for all sequences. Statistics of a constraint are dropped with it.

    They are collected from requests that use drafts, and used within their scope alone.
    """

    def __init__(self, leaper: Leaper, config: EngineConfig) -> None:
        self._spelling = leaper.spelling
        self._leaper = leaper
        self._config = config
        self._learned = WeakKeyDictionary[Constraint, dict[str, DraftStatistics]]()
        """By constraint and scope."""

    def statistics(self, request: EngineRequest) -> DraftStatistics | None:
        """Statistics of the request's constraint in its scope; None if it has no constraint."""
        constraint, scope = request.constraint, request.scope
        if constraint is None:
            return None
        learned = self._learned
        if scope not in learned.get(constraint, ()):
            while sum(map(len, learned.values())) >= _MOST_STATISTICS:  # the oldest are forgotten
                oldest, scopes = next(iter(learned.items()))
                del scopes[next(iter(scopes))]
                if not scopes:
                    del learned[oldest]
            learned.setdefault(constraint, {})[scope] = DraftStatistics()
        return learned[constraint][scope]

    def wanted(self, request: EngineRequest) -> bool:
        """Whether a request uses drafts; statistics are collected from such requests alone."""
        return request.options.draft and self._config.draft_branches

    def extend(self, sequence: Sequence, running: int) -> Draft:
        """Extend the current draft, the tokens that the last leap held back.

        ``running`` sequences share the next step. Costs a tokenization or two for each guess.
        """
        config, state, draft = self._config, sequence.state, sequence.draft
        most = min(config.max_draft_tokens, sequence.budget.limit - sequence.length - 1)
        if most <= 0 or not self.wanted(sequence.request):
            return draft.cut(most)
        if sequence.statistics is None or state is None:
            return self._predicted_text(sequence, most, running)
        path = _Path(sequence, sequence.statistics, state, [*draft.tokens], [*draft.sources])
        try:
            for token in draft.tokens:
                path.accept(token)
            self._walk(path, most, running)
        except (RejectedToken, RequestError):
            pass  # keep the tokens drafted before the error
        if len(path.tokens) != len(draft.tokens):
            draft = Draft(tuple(path.tokens), tuple(path.sources))
        return draft.cut(most)

    def _walk(self, path: _Path, most: int, running: int) -> None:
        """Guess and leap in turn, until the path becomes unlikely or has ``most`` tokens."""
        likely, floor = 1.0, self._floor(running, 1)
        statistics, copies = path.statistics, path.statistics.copies
        while len(path.tokens) < most:
            predicted = self._follow_prediction(path, likely, floor, most)
            if predicted is not None:
                likely = predicted
                if likely < floor:
                    return
                continue
            token, rate = statistics.likeliest(path.state.state_id, path.last)
            if likely * rate >= floor:
                likely *= rate
                length = len(path.tokens)
                goes_on = self._follow(path, token, Source.COUNTED)
                if likely < self._floor(running, len(path.tokens) - length):
                    path.cut(length + (path.tokens[length] == token))  # the guess without its leap
                    return
                if not goes_on:
                    return
                continue
            if likely * copies.rate < floor and not copies.try_again():
                return
            copied = self._copied(path)
            if not copied:
                return
            for each in copied:
                likely *= copies.rate
                if not self._follow(path, each, Source.COPIED):
                    return

    def _predicted_text(self, sequence: Sequence, most: int, running: int) -> Draft:
        """The draft of an answer without a constraint."""
        prediction = sequence.prediction
        assert prediction is not None
        likely, floor = 1.0, self._floor(running, 1)
        rate = prediction.rate
        if likely * rate.rate < floor and not rate.try_again():
            return NO_DRAFT
        # A token has a byte or more, so these hold the longest ending that is searched for.
        first = max(sequence.answer_start, len(sequence.tokens) - LONGEST_ENDING)
        ending = sequence.tokens[first:]
        tokens = self._rest(prediction, ending, whole=len(ending) == sequence.length)
        count = 0
        while count < min(len(tokens), most) and (likely >= floor or not count):
            likely *= rate.rate
            count += 1
        return Draft(tuple(tokens[:count]), (Source.PREDICTED,) * count)

    def _follow_prediction(
        self, path: _Path, likely: float, floor: float, most: int
    ) -> float | None:
        """Add tokens of the client's prediction; returns the probability of the longer path.

        None if no token is added: the prediction has none here, or none that is allowed.
        """
        prediction = path.sequence.prediction
        if prediction is None:
            return None
        rate = prediction.rate
        if likely * rate.rate < floor and not rate.try_again():
            return None
        ending, length = path.ending(LONGEST_ENDING), len(path.tokens)
        whole = len(ending) == path.sequence.length + length
        for token in self._rest(prediction, ending, whole=whole):
            if length < len(path.tokens) and (likely < floor or len(path.tokens) >= most):
                break
            likely *= rate.rate
            try:
                goes_on = self._follow(path, token, Source.PREDICTED)
            except RejectedToken:
                break
            if not goes_on:
                return 0.0
        return likely if len(path.tokens) > length else None

    def _rest(self, prediction: Prediction, ending: list[int], *, whole: bool) -> list[int]:
        """Tokens of the prediction after ``ending``, the answer's last tokens (``whole``: all)."""
        spelled = b"".join([self._spelling[token] for token in ending])
        rest = prediction.rest(spelled, begins=whole).decode(errors="ignore").encode()
        return self._continued(ending[-_WINDOW:], rest) if rest else []

    def _continued(self, before: list[int], rest: bytes) -> list[int]:
        """The tokens of ``rest`` as the tokenizer splits it behind ``before``.

        The last one is left out: the text after ``rest`` could change it.
        """
        spelled = [self._spelling[token] for token in before]
        while spelled and _INSIDE_CHARACTER.match(spelled[0]):
            before, spelled = before[1:], spelled[1:]
        tokens = self._leaper.encode(b"".join([*spelled, rest])) or []
        return tokens[len(before) : -1] if tokens[: len(before)] == before else []

    def _floor(self, running: int, width: int) -> float:
        """Minimum probability of a guess that costs ``width`` tokens, its leap included.

        A right guess saves its sequence's share of reading the weights in a step. A wrong one
        costs the computation of its tokens. See decision 14.
        """
        cost = running * max(width, 1)
        return max(_LEAST, cost / (cost + self._config.spare_tokens))

    def _follow(self, path: _Path, token: int, source: Source) -> bool:
        """Add a guess and the leap after it to ``path``; returns whether the path can continue."""
        path.accept(token)
        if path.state.is_final:
            return False  # the draw of this token ends the answer, and no pass follows it
        path.push(token, source)
        sequence = path.sequence
        if not (self._config.leap and sequence.request.options.leap) or not path.state.forced():
            return True
        # If the budget forbids this leap later, the draft is just wrong.
        answer = [*sequence.tokens[sequence.answer_start :], *path.tokens]
        change = self._leaper.change(answer, 0, path.state, path.statistics.changes)
        if change is None:
            return True
        path.state.accept_bytes(change.text)
        if change.dropped > 1 or path.state.is_final:
            path.cut(-1)  # the guess is retokenized with earlier tokens, or ends the answer
            return False
        if change.dropped:
            path.cut(-1)
        first = source if change.dropped else Source.LEAPT
        for number, each in enumerate(change.tokens):
            path.push(each, Source.LEAPT if number else first)
        for each in change.held_back.tokens:
            path.accept(each)
            path.push(each, Source.HELD_BACK)
        return True

    def _copied(self, path: _Path) -> list[int]:
        """Continuation, in the prompt, of the value that the answer is writing."""
        value = path.value(self._spelling)
        if len(value) < _SHORTEST_COPY:
            return []
        rest = path.state.quoted(_LONGEST_QUOTE) or self._found(path, value)
        return self._continued(path.ending(_WINDOW), rest)

    def _found(self, path: _Path, value: bytes) -> bytes:
        """The text after the last occurrence of ``value`` in the prompt."""
        prompt = path.sequence.prompt_ending(self._spelling, _COPIED_FROM)
        at = prompt.rfind(value)
        if at < 0:
            return b""
        at += len(value)
        rest = prompt[at : at + _LONGEST_COPY]
        for end in (b"\n", b'"', b"<"):
            rest = rest.partition(end)[0]
        return rest


@dataclass(slots=True)
class _Path:
    """The drafted continuation of a sequence so far."""

    sequence: Sequence
    statistics: DraftStatistics
    state: ConstraintState
    """The sequence's state; after the first step, a bounded copy that ``accept`` advances."""
    tokens: list[int]
    sources: list[Source]
    begun: bool = False

    @property
    def last(self) -> int:
        return self.tokens[-1] if self.tokens else self.sequence.tokens[-1]

    def accept(self, token: int) -> None:
        if not self.begun:
            self.state = self.state.copy(work=_WORK)
            self.begun = True
        self.state.accept(token)

    def ending(self, count: int) -> list[int]:
        """The last tokens of the answer with the path, at most ``count``."""
        known = self.sequence.tokens
        first = max(self.sequence.answer_start, len(known) - count)
        return [*known[first:], *self.tokens][-count:]

    def value(self, spelling: Seq[bytes]) -> bytes:
        """The end of the string that the answer is in: the text after the last quote."""
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

    def cut(self, length: int) -> None:
        """Forget the tokens from there on; the state stays where it is."""
        del self.tokens[length:], self.sources[length:]
