"""One answer in the making: its tokens, where they stand in the cache, what was told of it."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from hashlib import blake2b

from app.core.constraint import ConstraintState
from app.core.errors import RequestError
from app.core.events import AnswerToken, AnswerUsage, FinishReason, TokenChunk
from app.core.request import EngineRequest
from app.core.step import SampledToken
from app.engine.drafts.draft import NO_DRAFT
from app.engine.drafts.statistics import Memory
from app.engine.leap import Change, Leap
from app.engine.stop_tokens import Endings
from app.engine.stopping import StopFinder
from app.engine.thinking import Reserved
from app.kv.manager import BlockTable


class Sequence:
    """The state of one engine request. Owned by the engine, on its thread.

    Intervals of positions::

        0                  answer_start          len(tokens)     len(tokens) + len(draft)
        |------ prompt ---------|------ answer ------|---- draft ----|
        |------------- computed ----------|---------- gap -----------|

    The text of the answer only grows; its last tokens may give way to others that spell the same
    text and more (a leap).
    """

    __slots__ = (
        "_answer_bytes",
        "_hash",
        "_leapt",
        "_num_leapt",
        "_pending",
        "_prompt_ending",
        "_stops",
        "admitted",
        "answer_start",
        "begun",
        "blocks",
        "budget_closed",
        "cached_tokens",
        "computed",
        "draft",
        "drafted_tokens",
        "ended_by_token",
        "endings",
        "error",
        "finish_reason",
        "finishes_in_budget",
        "forward_passes",
        "memory",
        "number",
        "request",
        "reserved",
        "state",
        "tokens",
    )

    def __init__(
        self,
        request: EngineRequest,
        state: ConstraintState | None,
        number: int,
        *,
        endings: Endings | None = None,
        reserved: Reserved | None = None,
    ) -> None:
        self.request = request
        self.endings = endings
        """None where only the vocabulary's ends of sequence and stop strings end it."""
        self.reserved = reserved
        """None where the whole budget may be spent."""
        self.number = number
        """Order of arrival."""
        self.tokens = list(request.prompt)
        self.answer_start = len(self.tokens)
        self.draft = NO_DRAFT
        self.computed = 0
        self.blocks = BlockTable()
        self.state = state
        self.finishes_in_budget = state is not None and request.on_budget == "finish"
        """Whether the budget narrows the masks (law 2)."""
        self.memory: Memory | None = None
        """What earlier answers of the constraint did, once it was asked for."""
        self.begun = False
        self.admitted = False
        self.budget_closed = False
        self.finish_reason: FinishReason | None = None
        self.error: RequestError | None = None
        self.cached_tokens = 0
        self.drafted_tokens = 0
        self.forward_passes = 0
        self.ended_by_token = 0
        """1 after a sampled token that ended the answer."""
        seed = request.seed & 0xFFFF_FFFF_FFFF_FFFF
        self._hash = blake2b(seed.to_bytes(8, "little"), digest_size=8)
        self._stops = StopFinder(request.stop) if request.stop else None
        self._answer_bytes = 0
        self._leapt = bytearray()
        """1 for each token of the answer that was leapt."""
        self._num_leapt = 0
        self._prompt_ending: bytes | None = None
        self._pending: list[AnswerToken] = []

    @property
    def gap(self) -> int:
        """Tokens to compute, drafted ones included."""
        return len(self.tokens) + len(self.draft.tokens) - self.computed

    @property
    def length(self) -> int:
        """Tokens of the answer."""
        return len(self.tokens) - self.answer_start

    @property
    def remaining(self) -> int:
        """Tokens the answer may still have, end of sequence not counted."""
        return self.request.max_tokens - self.length

    @property
    def limit(self) -> int:
        """Tokens the answer may have as things stand: ``max_tokens`` without what is reserved."""
        most = self.request.max_tokens
        return most if self.reserved is None else most - self.reserved.tokens

    def keys(self, drafted: Seq[bytes]) -> list[int]:
        """64-bit keys of the draws after the answer, and after each of the drafted texts more.

        A key is a hash of the seed and the answer's bytes, so it does not depend on how the text
        was split into tokens or steps. Costs O(drafted bytes).
        """
        keys = [int.from_bytes(self._hash.digest(), "little")]
        if not drafted:
            return keys
        ahead = self._hash.copy()
        for data in drafted:
            ahead.update(data)
            keys.append(int.from_bytes(ahead.digest(), "little"))
        return keys

    def prompt_ending(self, spelling: Seq[bytes], size: int) -> bytes:
        """The last ``size`` bytes of the prompt at most; spelled once."""
        if self._prompt_ending is None:
            # A token that spells something has a byte at least.
            last = self.request.prompt[-size:]
            self._prompt_ending = b"".join([spelling[token] for token in last])[-size:]
        return self._prompt_ending

    def append(self, token: AnswerToken) -> None:
        """Confirm a token and the bytes it adds to the answer; finishes it at a stop string.

        As with stop tokens, one that comes after fewer than ``min_tokens`` others does not count.
        """
        counts = self._stops is not None and self.length >= self.request.min_tokens
        leapt = token.source == "leapt"
        self.tokens.append(token.token_id)
        self._leapt.append(leapt)
        self._num_leapt += leapt
        self._hash.update(token.data)
        self._answer_bytes += len(token.data)
        self._pending.append(token)
        if self.reserved is not None:
            self.reserved.feed(token.data)
        if self._stops is not None:
            cut = self._stops.feed(token.data, counts=counts)
            if cut is not None:
                self._cut_pending(self._answer_bytes - cut)
                self.finish("stop")

    def leap(self, leap: Leap) -> int:
        """Replace the answer's last tokens by those of ``leap``, up to a stop string or token.

        Returns how many tokens were told of: those that go on from the old text.
        A stop token inside the old text ends nothing: that text was gone on from. One that begins
        there and adds to it ends the answer where the old text ended.
        """
        change = leap.change
        self.draft = change.held_back
        self.state = leap.state
        if change.dropped:
            self._num_leapt -= self._leapt.count(1, -change.dropped)
            del self.tokens[-change.dropped :]
            del self._leapt[-change.dropped :]
        if self._stops is not None or self.endings is not None or self.reserved is not None:
            return self._append_each(change)
        told = len(change.told)
        self.tokens += change.tokens
        self._leapt += bytes(len(change.tokens) - told) + b"\1" * told
        self._num_leapt += told
        self._hash.update(change.text)
        self._answer_bytes += len(change.text)
        self._pending += change.told
        return told

    def _append_each(self, change: Change) -> int:
        """Where any of the tokens may end the answer."""
        told = len(self._pending)
        for token, data in zip(change.tokens, change.added, strict=True):
            if not data:
                self.tokens.append(token)
                self._leapt.append(False)
            elif self.endings is not None and self.endings.ends(token, self.length):
                self.append(AnswerToken(token, b"", "leapt"))
                self.finish("stop")
            else:
                self.append(AnswerToken(token, data, "leapt"))
            if self.finish_reason is not None:
                break
        return len(self._pending) - told

    def end(self, sampled: SampledToken) -> None:
        """Finish at a sampled token that ends the answer and adds no bytes to it."""
        self.ended_by_token = 1
        self._pending.append(
            AnswerToken(sampled.token_id, b"", "sampled", sampled.logprob, sampled.top)
        )
        self.finish("stop")

    def finish(self, reason: FinishReason) -> None:
        self.finish_reason = reason
        self.draft = NO_DRAFT

    def emit(self) -> TokenChunk | None:
        """What was added since the last call; None if nothing can be told and nothing ended.

        A token whose bytes could be the start of a stop string waits, and all after it.
        """
        pending = self._pending
        if self._stops is not None and self._stops.held_back and self.finish_reason is None:
            count, held = len(pending), 0
            while count and held < self._stops.held_back:
                count -= 1
                held += len(pending[count].data)
            self._pending, pending = pending[count:], pending[:count]
        else:
            self._pending = []
        if not pending and self.finish_reason is None:
            return None
        return TokenChunk(
            request_id=self.request.request_id,
            data=b"".join([token.data for token in pending]),
            tokens=tuple(pending),
            usage=self.usage(),
            finish_reason=self.finish_reason,
            error=self.error,
        )

    def usage(self) -> AnswerUsage:
        """Counts so far; ``completion_tokens`` includes a token that ended the answer."""
        return AnswerUsage(
            prompt_tokens=self.answer_start,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.length + self.ended_by_token,
            leapt_tokens=self._num_leapt,
            drafted_tokens=self.drafted_tokens,
            forward_passes=self.forward_passes,
        )

    def _cut_pending(self, excess: int) -> None:
        """Take the last ``excess`` bytes back from tokens that were not emitted yet."""
        for index in range(len(self._pending) - 1, -1, -1):
            if excess <= 0:
                return
            token = self._pending[index]
            kept = max(0, len(token.data) - excess)
            excess -= len(token.data)
            self._pending[index] = AnswerToken(
                token.token_id, token.data[:kept], token.source, token.logprob, token.top
            )
        assert excess <= 0, "a stop string began in bytes that were emitted"

    def check_integrity(self) -> None:
        """Assert what holds between steps. For tests."""
        assert self.computed < len(self.tokens), "no token left to draw from"
        assert len(self._leapt) == self.length
        assert self._leapt.count(1) == self._num_leapt
        assert self.remaining >= 0
        if self.state is not None and self.finishes_in_budget and self.begun:
            room = self.limit - self.length
            assert self.state.shortest_tokens() <= room, "the budget cannot be met"
