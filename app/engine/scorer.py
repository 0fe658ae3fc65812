"""The choices of all sequences: decides which ones to score, and applies the scores.

See "Exact probabilities of a choice" in decision 39.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence as Seq
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from app.core.choices import ChoosingState, ScoredChoice, Way
from app.core.constraint import ConstraintState, Vocabulary
from app.core.request import EngineRequest
from app.engine.choices.cursor import Cursor, Found
from app.engine.choices.scoring import Scoring, draw
from app.engine.choices.ways import WayTree
from app.engine.config import EngineConfig
from app.engine.leap import WINDOW_TOKENS, Leaper
from app.engine.sequence import Sequence


class Scorer:
    """Finds the choices of sequences to score, and applies the results."""

    def __init__(
        self,
        leaper: Leaper,
        vocabulary: Vocabulary,
        config: EngineConfig,
        *,
        room: int,
        branching: bool,
    ) -> None:
        """``room``: maximum tokens of a sequence; ``branching``: the runner supports trees."""
        self._leaper = leaper
        self._eos = np.array(sorted(vocabulary.eos_ids), np.int32)
        # A pass has to fit beside one token of every other sequence.
        beside = config.max_batch_tokens - config.max_running + 1
        self._most = min(config.small_gap_tokens, beside)
        self._room = room
        self._branching = branching

    @staticmethod
    def cursor(request: EngineRequest, state: ConstraintState | None) -> Cursor | None:
        """A cursor that finds the choices of a new answer; None if they are not needed."""
        options = request.choices
        if options is None or not isinstance(state, ChoosingState):
            return None
        if not (options.report or options.exact or state.has_exact_choices):
            return None
        locator = None if options.locator is None else options.locator()
        return Cursor(state.copy(), locator, is_text=options.is_text)

    def find_next(self, sequence: Sequence) -> None:
        """Find the next choice to score, before the sequence continues.

        If there is one, an answer that would end is kept open for it. Forced text after a stop
        token is not written, so choices there are not scored.
        """
        cursor = sequence.cursor
        if cursor is None or sequence.scoring is not None or sequence.stopped_by:
            return
        ends = sequence.finish_reason is not None or sequence.pending_finish is not None
        while sequence.scoring is None:
            found = cursor.next()
            if found is None or (ends and found.start > cursor.length):
                return
            sequence.scoring = self._scoring(sequence, cursor, found)
        if sequence.finish_reason is not None:
            sequence.pending_finish = sequence.finish_reason
            sequence.finish_reason = None

    def finish(self, sequence: Sequence) -> None:
        """Report a choice that has been scored and, if it is exact, draw its way.

        The caller then leaps over the text that is forced now, and calls ``find_next``.
        """
        scoring, cursor = sequence.scoring, sequence.cursor
        assert scoring is not None
        assert scoring.is_done
        assert cursor is not None
        sequence.scoring = None
        options = sequence.request.choices
        assert options is not None
        result = scoring.result()
        if options.report or result.by_tokens:
            sequence.scored.append(result)
        if scoring.exact:
            self._decide(sequence, cursor, scoring, [way.logprob for way in result.ways])

    def _decide(
        self, sequence: Sequence, cursor: Cursor, scoring: Scoring, logprobs: Seq[float]
    ) -> None:
        """Draw a way that can be finished within the budget."""
        found, state = scoring.found, sequence.state
        assert isinstance(state, ChoosingState)
        written = cursor.text(found.start, cursor.length)
        left = sequence.budget.limit - sequence.length
        kept: list[tuple[Way, ChoosingState, float]] = []
        for way, logprob in zip(found.choice.ways, logprobs, strict=True):
            rest = _rest(way, written)
            if rest is None:
                continue
            after = state.only(rest, found.ahead)
            if not sequence.budget.finishes or after.fits(left):
                kept.append((way, after, logprob))
        if not kept:
            return
        temperature = sequence.request.options.sampling.temperature
        index = draw([each for _, _, each in kept], temperature, _uniform(sequence.key))
        sequence.state = kept[index][1]
        cursor.state = cursor.state.only(kept[index][0])

    def _scoring(self, sequence: Sequence, cursor: Cursor, found: Found) -> Scoring | None:
        options = sequence.request.choices
        assert options is not None
        choice = found.choice
        several = len(choice.ways) > 1
        begun = found.start < cursor.length
        written = cursor.text(found.start, cursor.length)
        left = [_rest(way, written) is not None for way in choice.ways].count(True)
        wanted = (options.exact or choice.is_exact) and len(choice.ways) != 1
        exact = wanted and left > 1 and not choice.is_open
        whole = bool(choice.ways) and choice.ways[0].kind in ("value", "text")
        if not exact and not (options.report and (several or whole)):
            self._pass_over(sequence, found, wanted)
            return None
        base, before = len(sequence.tokens), found.ahead
        if begun:  # from the token on that spells its first byte
            start = cursor.length
            while start > found.start:
                base -= 1
                start -= len(self._leaper.spelling[sequence.tokens[base]])
            before = cursor.text(start, found.start)
        tree = self._tree(sequence, found, base, before)
        if tree is None:
            self._pass_over(sequence, found, wanted)
            return None
        by_tokens = wanted and not (exact and left == len(choice.ways))
        return Scoring(found, tree, base, self._most, exact=exact, by_tokens=by_tokens)

    @staticmethod
    def _pass_over(sequence: Sequence, found: Found, wanted: bool) -> None:
        """Score nothing; report the choice if an exact draw was ``wanted``."""
        if wanted:
            sequence.scored.append(ScoredChoice(found.start, found.place, (), True, by_tokens=True))

    def _tree(self, sequence: Sequence, found: Found, base: int, before: bytes) -> WayTree | None:
        """The tree of a choice, cached for later answers."""
        assert sequence.statistics is not None
        trees = sequence.statistics.trees
        window = tuple(sequence.tokens[max(sequence.answer_start, base - WINDOW_TOKENS) : base])
        key = (found.state.state_id, found.place, found.choice.of, before, window)
        if (kept := trees.get(key)) is None:
            # The last token before the tree is part of every pass.
            tree = WayTree.of(
                found,
                before,
                lambda text: self._split(window, text),
                self._eos,
                most=self._most - 1,
                branching=self._branching,
            )
            trees.keep(key, kept := (tree,))
        (tree,) = kept
        if tree is None or base + max(len(each.nodes) for each in tree.passes) > self._room:
            return None
        return tree

    def _split(self, window: Seq[int], text: bytes) -> list[tuple[int, int]] | None:
        """``text`` as the tokenizer splits it after ``window``; alone if no token begins there."""
        spelling = self._leaper.spelling
        before = b"".join([spelling[token] for token in window])
        return self._split_behind(before, text) or self._split_behind(b"", text)

    def _split_behind(self, before: bytes, text: bytes) -> list[tuple[int, int]] | None:
        whole = before + text
        tokens = self._leaper.encode(whole)
        if tokens is None:
            return None
        sizes = [len(self._leaper.spelling[token]) for token in tokens]
        if b"".join([self._leaper.spelling[token] for token in tokens]) != whole:
            return None
        at, index = 0, 0
        while at < len(before):
            at += sizes[index]
            index += 1
        return None if at > len(before) else [*zip(tokens[index:], sizes[index:], strict=True)]


def _rest(way: Way, written: bytes) -> Way | None:
    """The rest of a way after ``written``; None if the way does not begin so, or ends there."""
    if not written:
        return way
    texts = tuple([text[len(written) :] for text in way.texts if text.startswith(written)])
    ends = way.ends_answer and way.text.startswith(written)
    if b"" in texts or not (texts or ends):
        return None
    return replace(way, text=way.text[len(written) :], texts=texts, scored=(), ends_answer=ends)


def _uniform(key: int) -> float:
    """A random number from 0 to 1, 1 excluded, that no draw of a token with this key shares."""
    digest = blake2b(struct.pack("<Q", key), digest_size=8, person=b"choice").digest()
    return (int.from_bytes(digest, "little") >> 11) / (1 << 53)
