"""The state of one unfinished answer: its tokens, its place in the cache, what was emitted."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from app.core.choices import ScoredChoice
from app.core.constraint import ConstraintState
from app.core.errors import LeapjsonError
from app.core.events import AnswerToken, AnswerUsage, FinishReason, TokenChunk
from app.core.request import EngineRequest, ServiceTier
from app.core.step import SampledToken
from app.engine.budget import Budget
from app.engine.choices.cursor import Cursor
from app.engine.choices.scoring import Scoring
from app.engine.draft import NO_DRAFT, Draft
from app.engine.draft_statistics import DraftStatistics
from app.engine.leap import Change
from app.engine.prediction import Prediction
from app.engine.prompt_images import PromptImageMap
from app.engine.prompt_scores import PromptScores
from app.engine.stop_tokens import StopFinder, StopTokens
from app.engine.token_sources import DRAFTED, HELD, LEAPT, SAMPLED, TokenSources
from app.kv.states import KeptStates
from app.kv.table import BlockTable


@dataclass(slots=True, eq=False, repr=False)
class Sequence:
    """The state of one engine request. Owned by the engine, on its thread.

    Intervals of positions::

        0                  answer_start          len(tokens)     len(tokens) + len(draft)
        |------ prompt ---------|------ answer ------|---- draft ----|
        |---- computed ----|- in flight --|---------- gap -----------|
                                    launched

    Tokens in flight are computed by a step that is not committed yet. If that step also draws the
    next token, ``launched`` may be one more than the known tokens. The text of the answer only
    grows; a leap may replace its last tokens by others that spell the same text and more.
    """

    request: EngineRequest
    state: ConstraintState | None
    budget: Budget
    stop_tokens: StopTokens | None = None
    """None if only the vocabulary's ends of sequence and stop strings end the answer."""
    tier: ServiceTier = field(init=False)
    """Tier of the request, or a higher one after its class was overdue."""
    tokens: list[int] = field(init=False)
    answer_start: int = field(init=False)
    vision_input: PromptImageMap | None = field(init=False)
    """None if the prompt has no images."""
    draft: Draft = NO_DRAFT
    computed: int = 0
    launched: int = 0
    blocks: BlockTable = field(default_factory=BlockTable)
    states: KeptStates = field(default_factory=KeptStates)
    """Recurrent states; empty for models without recurrent layers."""
    has_penalties: bool = field(init=False)
    prompt_tokens: NDArray[np.int64] | None = field(init=False)
    """See ``Draw.prompt_tokens``."""
    prediction: Prediction | None = None
    """Text that the client expects, if it was sent and drafts are enabled."""
    statistics: DraftStatistics | None = None
    """Draft statistics of its constraint, if it has one; set by ``Decoder.begin``."""
    place: Hashable = None
    """The constraint's state before the last draw."""
    scheduled: bool = False
    """Whether it ever had blocks."""
    cursor: Cursor | None = None
    """Finds the choices; None if they are not used, or before the start."""
    scoring: Scoring | None = None
    """The scoring in progress, after which the sequence continues."""
    scored: list[ScoredChoice] = field(default_factory=list)
    """Scored choices that are not emitted yet."""
    pending_finish: FinishReason | None = None
    """Finish reason that applies once the last choices are scored."""
    drawn_again: int = 0
    """Rejected draws of the next token."""
    finish_reason: FinishReason | None = None
    error: LeapjsonError | None = None
    cached_tokens: int = 0
    forward_passes: int = 0
    ended_by_token: int = 0
    """1 if a sampled token ended the answer."""
    _hash: blake2b = field(init=False)
    _stops: StopFinder | None = field(init=False)
    sources: TokenSources = field(default_factory=TokenSources)
    """Sources of the answer's tokens."""
    prompt_scores: PromptScores | None = None
    """Log-probabilities of the prompt; None if not wanted, or once emitted."""
    _prompt_ending: bytes | None = None
    _pending: list[AnswerToken] = field(default_factory=list)
    """Tokens that are not emitted yet."""

    def __post_init__(self) -> None:
        request = self.request
        self.tier = request.tier
        self.tokens = list(request.prompt)
        self.answer_start = len(self.tokens)
        images = request.images
        self.vision_input = None if images is None else PromptImageMap(request.prompt, images)
        sampling = request.options.sampling
        self.has_penalties = sampling.has_penalties
        repeats = sampling.repetition_penalty != 1.0
        self.prompt_tokens = np.unique(np.asarray(request.prompt, np.int64)) if repeats else None
        seed = request.seed & 0xFFFF_FFFF_FFFF_FFFF
        self._hash = blake2b(seed.to_bytes(8, "little"), digest_size=8)
        self._stops = StopFinder(request.options.stop) if request.options.stop else None

    @property
    def num_known(self) -> int:
        """Tokens of prompt and answer, drafted ones included."""
        return len(self.tokens) + len(self.draft.tokens)

    @property
    def gap(self) -> int:
        """Tokens to launch, drafted ones included."""
        if self.scoring is not None:
            return self.scoring.gap(self.launched)
        return self.num_known - self.launched

    @property
    def identities(self) -> Seq[int]:
        """The ids that key its prefixes: its tokens, with ids of their own for image features."""
        if self.vision_input is None:
            return self.tokens
        return self.vision_input.identities(self.tokens)

    @property
    def basis(self) -> Seq[int]:
        """Identities of the tokens to compute next: up to the choice, if one is being scored."""
        return self.identities if self.scoring is None else self.identities[: self.scoring.base]

    def fits(self, granted: int) -> bool:
        """Whether so many tokens can be computed next."""
        return self.scoring is None or self.scoring.fits(self.launched, granted)

    def uncut(self, granted: int) -> int:
        """How many of ``granted`` tokens can be computed next: images whose tokens attend to each
        other are not cut, and prompts that are scored are computed a few tokens at a time."""
        if self.recomputes:
            assert self.prompt_scores is not None
            granted = min(granted, self.prompt_scores.most)
        images = self.vision_input
        return granted if images is None else images.uncut(self.launched, granted)

    @property
    def recomputes(self) -> bool:
        """Whether cached prompt tokens have to be computed again, for their scores."""
        return self.prompt_scores is not None and not self.prompt_scores.is_done

    @property
    def whole(self) -> int:
        """Tokens left of an image that is next, if its tokens attend to each other; else 0."""
        return 0 if self.vision_input is None else self.vision_input.whole(self.launched)

    @property
    def length(self) -> int:
        """Tokens of the answer."""
        return len(self.tokens) - self.answer_start

    @property
    def stopped_by(self) -> bytes:
        """The stop string that ended it, which is no part of its text."""
        return b"" if self._stops is None else self._stops.found

    @property
    def adds_one_token(self) -> bool:
        """Whether the next draw is expected to add exactly one token."""
        if self.length + 1 >= self.request.max_tokens:
            return False
        if self.cursor is not None:
            return False  # a choice may come, which is scored first
        if self.prediction is not None and self.prediction.found:
            return False  # it brings a draft
        if self.statistics is None:
            return True
        assert self.state is not None
        return self.state.state_id not in self.statistics.multi_token_places

    @property
    def key(self) -> int:
        """64-bit key of the draw after the answer; see ``keys``."""
        return int.from_bytes(self._hash.digest(), "little")

    @property
    def draw_key(self) -> int:
        """``key``, or a distinct key for each time that the token is drawn again."""
        if not self.drawn_again:
            return self.key
        count = struct.pack("<QQ", self.key, self.drawn_again)
        return int.from_bytes(blake2b(count, digest_size=8, person=b"again").digest(), "little")

    def keys(self, drafted: Seq[bytes]) -> list[int]:
        """64-bit keys of the draws after the answer, and after each further drafted text.

        A key is a hash of the seed and the answer's bytes, so it does not depend on how the text
        was split into tokens or steps. Costs O(drafted bytes).
        """
        keys = [self.draw_key]
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

    def append(self, token: AnswerToken, source: int = SAMPLED) -> None:
        """Confirm a token and the bytes it adds to the answer; finishes it at a stop string.

        A stop string counts only after ``min_tokens`` tokens, as stop tokens do.
        """
        counts = self._stops is not None and self.length >= self.request.options.min_tokens
        self.drawn_again = 0
        self.tokens.append(token.token_id)
        self.sources.append(source, token)
        self._hash.update(token.data)
        self._pending.append(token)
        if self.cursor is not None:
            self.cursor.feed(token.data)
        if self.budget.thinking is not None:
            self.budget.thinking.feed(token.data)
        if self._stops is not None:
            cut = self._stops.feed(token.data, counts=counts)
            if cut is not None:
                self._cut_pending(self._stops.length - cut)
                self.finish("stop")

    def leap(self, change: Change, state: ConstraintState) -> int:
        """Apply ``change``, which leads to ``state``, up to a stop string or token.

        Returns the number of tokens that add text. A stop token inside the old text is ignored, as
        the answer has continued after it. One that begins there and adds text ends the answer at
        the end of the old text.
        """
        self.drawn_again = 0
        self.draft = change.held_back
        self.state = state
        split = SAMPLED
        if change.dropped:
            del self.tokens[-change.dropped :]
            split = self.sources.drop(change.dropped)
        if (
            self._stops is not None
            or self.stop_tokens is not None
            or self.budget.thinking is not None
        ):
            return self._append_each(change, split)
        new = len(change.answer_tokens)
        self.tokens += change.tokens
        old = len(change.tokens) - new
        if old:
            self.sources.extend(split, change.tokens[:old])
        self.sources.extend(LEAPT, change.tokens[old:])
        self._hash.update(change.text)
        if self.cursor is not None:
            self.cursor.feed(change.text)
        self._pending += change.answer_tokens
        return new

    def _append_each(self, change: Change, split: int) -> int:
        """Append the tokens one by one, as any of them may end the answer."""
        before = len(self._pending)
        for token, data in zip(change.tokens, change.added, strict=True):
            if not data:
                self.tokens.append(token)
                self.sources.append(split, token)
            elif self.stop_tokens is not None and self.stop_tokens.ends(token, self.length):
                self.append(AnswerToken(token, b"", "leapt"), LEAPT)
                self.finish("stop")
            else:
                self.append(AnswerToken(token, data, "leapt"), LEAPT)
            if self.finish_reason is not None:
                break
        return len(self._pending) - before

    def end(self, sampled: SampledToken) -> None:
        """Finish at a sampled token that ends the answer and adds no bytes to it."""
        self.ended_by_token = 1
        token = AnswerToken(sampled.token_id, b"", "sampled", sampled.logprob, sampled.top)
        self._pending.append(token)
        self.sources.end(token)
        self.finish("stop")

    def finish(self, reason: FinishReason) -> None:
        self.finish_reason = reason
        self.draft = NO_DRAFT

    def emit(self) -> TokenChunk | None:
        """The tokens added since the last call; None if there are none and the answer goes on.

        A token that could begin a stop string is held back, with all after it.
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
        usage = AnswerUsage(  # positional arguments: made for every answer and step
            self.answer_start,
            self.cached_tokens,
            len(self.tokens) - self.answer_start + self.ended_by_token,
            self.sources.counts[LEAPT],
            self.sources.counts[DRAFTED],
            self.sources.counts[HELD],
            self.forward_passes,
        )
        if (prediction := self.prediction) is not None:
            usage.accepted_prediction_tokens = prediction.accepted
            usage.rejected_prediction_tokens = prediction.drafted - prediction.accepted
        scored, self.scored = self.scored, []
        prompt: Seq[AnswerToken] = ()
        if self.prompt_scores is not None and self.finish_reason not in ("abort", "error"):
            prompt, self.prompt_scores = self.prompt_scores.tokens, None
        return TokenChunk(
            self.request.request_id,
            pending[0].data if len(pending) == 1 else b"".join([each.data for each in pending]),
            tuple(pending),
            usage,
            self.finish_reason,
            self.error,
            self.stopped_by,
            self.budget.closed,
            scored,
            self.sources.take(),
            prompt,
        )

    def _cut_pending(self, excess: int) -> None:
        """Take the last ``excess`` bytes back from tokens that were not emitted yet."""
        for index in range(len(self._pending) - 1, -1, -1):
            if excess <= 0:
                return
            token = self._pending[index]
            kept = max(0, len(token.data) - excess)
            excess -= len(token.data)
            self._pending[index] = replace(token, data=token.data[:kept])
        assert excess <= 0, "a stop string began in bytes that were emitted"
