"""One answer in the making: its tokens, where they stand in the cache, what was told of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from hashlib import blake2b

from app.core.constraint import ConstraintState
from app.core.errors import RequestError
from app.core.events import AnswerToken, AnswerUsage, FinishReason, TokenChunk, TokenSource
from app.core.request import EngineRequest
from app.core.step import SampledToken
from app.engine.draft import NO_DRAFT, held_back
from app.engine.endings import Endings
from app.engine.leap import Leap
from app.engine.reserved import Reserved
from app.engine.stopping import StopFinder
from app.kv.manager import BlockTable

_NOTHING_SAMPLED = SampledToken(-1)


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
        "forward_passes",
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
        self._stops = StopFinder(request.stop)
        self._answer_bytes = 0
        self._leapt = bytearray()
        self._prompt_ending: bytes | None = None
        self._pending: deque[AnswerToken] = deque()

    @property
    def gap(self) -> int:
        """Tokens to compute, drafted ones included."""
        return len(self.tokens) + len(self.draft) - self.computed

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
        kept = 0 if self.reserved is None else self.reserved.tokens
        return self.request.max_tokens - kept

    @property
    def finishes_in_budget(self) -> bool:
        """Whether the budget narrows the masks (law 2)."""
        return self.state is not None and self.request.on_budget == "finish"

    def keys(self, drafted: Iterable[bytes]) -> list[int]:
        """64-bit keys of the draws after the answer, and after each of the drafted texts more.

        A key is a hash of the seed and the answer's bytes, so it does not depend on how the text
        was split into tokens or steps. Costs O(drafted bytes).
        """
        ahead = self._hash.copy()
        keys = [int.from_bytes(ahead.digest(), "little")]
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

    def append(
        self,
        token: int,
        data: bytes,
        source: TokenSource,
        sampled: SampledToken = _NOTHING_SAMPLED,
    ) -> None:
        """Confirm a token that adds ``data`` to the answer; finishes it at a stop string.

        As with stop tokens, one that comes after fewer than ``min_tokens`` others does not count.
        """
        counts = self.length >= self.request.min_tokens
        self.tokens.append(token)
        self._leapt.append(source == "leapt")
        self._hash.update(data)
        self._answer_bytes += len(data)
        self._pending.append(AnswerToken(token, data, source, sampled.logprob, sampled.top))
        if self.reserved is not None:
            self.reserved.feed(data)
        cut = self._stops.feed(data, counts=counts)
        if cut is not None:
            self._cut_pending(self._answer_bytes - cut)
            self.finish("stop")

    def leap(self, leap: Leap) -> int:
        """Replace the answer's last tokens by those of ``leap``, up to a stop string or token.

        Returns how many tokens were told of: those that go on from the old text.
        A stop token inside the old text ends nothing: that text was gone on from. One that begins
        there and adds to it ends the answer where the old text ended.
        """
        self.draft = held_back(leap.draft)
        self.state = leap.state
        if leap.dropped:
            del self.tokens[-leap.dropped :]
            del self._leapt[-leap.dropped :]
        told = len(self._pending)
        for token, data in zip(leap.tokens, leap.added, strict=True):
            if not data:
                self.tokens.append(token)
                self._leapt.append(False)
            elif self.endings is not None and self.endings.ends(token, self.length):
                self.append(token, b"", "leapt")
                self.finish("stop")
            else:
                self.append(token, data, "leapt")
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
        count = len(self._pending)
        if self.finish_reason is None and self._stops.held_back:
            held = 0
            while count and held < self._stops.held_back:
                count -= 1
                held += len(self._pending[count].data)
        if not count and self.finish_reason is None:
            return None
        tokens = tuple(self._pending.popleft() for _ in range(count))
        return TokenChunk(
            request_id=self.request.request_id,
            data=b"".join([token.data for token in tokens]),
            tokens=tokens,
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
            leapt_tokens=self._leapt.count(1),
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
        assert self.remaining >= 0
        if self.state is not None and self.finishes_in_budget and self.begun:
            room = self.limit - self.length
            assert self.state.shortest_tokens() <= room, "the budget cannot be met"
