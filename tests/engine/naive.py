"""The oracle: one sequence at a time, computed in full at each step, without cache or drafts."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from app.core.constraint import ConstraintState, Mask
from app.core.errors import DrawAgain
from app.core.request import EngineRequest
from app.core.step import Draw
from app.core.text import Tokenizer
from app.engine.leap import Leaper
from tests.fakes import ByteVocabulary, ScriptedModel, draw


@dataclass(frozen=True, slots=True)
class NaiveAnswer:
    tokens: list[int]
    """Tokens of the answer at its end, without a drawn token that ended it."""
    text: bytes
    finish_reason: str


def naive_answer(
    request: EngineRequest,
    model: ScriptedModel,
    vocabulary: ByteVocabulary,
    tokenizer: Tokenizer,
    *,
    leap: bool = True,
) -> NaiveAnswer:
    """The answer of plain constrained decoding, with leaps if ``leap``."""
    return _Naive(
        request, model, vocabulary, tokenizer, leap=leap and request.options.leap
    ).answer()


class _Naive:
    def __init__(
        self,
        request: EngineRequest,
        model: ScriptedModel,
        vocabulary: ByteVocabulary,
        tokenizer: Tokenizer,
        *,
        leap: bool,
    ) -> None:
        self.request = request
        self.model = model
        self.vocabulary = vocabulary
        self.leaper = Leaper(vocabulary, tokenizer) if leap else None
        self.state: ConstraintState | None = None
        self.finish = request.options.on_budget == "finish"
        self.kept = 0
        if request.constraint is not None:
            self.state = request.constraint.start()
            if request.thinking is not None and self.finish:
                spare = request.max_tokens - self.state.shortest_tokens()
                self.kept = min(request.thinking.kept, spare)
        self.tokens: list[int] = []
        self.text = b""
        self.counted: list[bool] = []
        """For each byte of the text, whether a stop string may end there: see ``min_tokens``."""
        self.ended = False
        """Whether a leapt token ended the answer."""

    def answer(self) -> NaiveAnswer:
        leapt = False
        while True:
            reason = self._decided()
            if reason is not None:
                return NaiveAnswer(self.tokens, self._cut(), reason)
            if not leapt and self._leap():
                leapt = True
                if self.ended:
                    return NaiveAnswer(self.tokens, self._cut(), "stop")
                continue
            leapt = False
            token, again = self._draw(0), 0
            while not self._ends(token, len(self.tokens)) and not self._accepts(token):
                again += 1
                token = self._draw(again)
            if self._ends(token, len(self.tokens)):
                return NaiveAnswer(self.tokens, self.text, "stop")
            self._add(token, self.vocabulary.spell([token]))

    def _decided(self) -> str | None:
        request, state = self.request, self.state
        if self._cut() != self.text or (state is not None and state.is_final):
            return "stop"
        if request.thinking is not None:
            begin, end = request.thinking.begin, request.thinking.end
            begun = self.text.startswith(begin)
            may_begin = begun or begin.startswith(self.text)
            if not may_begin or (begun and end in self.text[len(begin) :]):
                self.kept = 0
        if len(self.tokens) == request.max_tokens - self.kept:
            self.kept = 0
        if len(self.tokens) == request.max_tokens:
            whole = state is not None and state.is_complete and not request.open_ended
            return "stop" if whole else "length"
        return None

    def _leap(self) -> bool:
        """Take a leap if there is one."""
        request, start = self.request, len(self.request.prompt)
        if self.leaper is None or self.state is None:
            return False
        limit = request.max_tokens - self.kept
        jump = self.leaper.propose(
            [*request.prompt, *self.tokens], start, self.state, limit, finish=self.finish
        )
        if jump is None or not jump[0].tokens:
            return False
        change, self.state = jump
        del self.tokens[len(self.tokens) - change.dropped :]
        for token, added in zip(change.tokens, change.added, strict=True):
            if added and self._ends(token, len(self.tokens)):
                self._add(token, b"")
                self.ended = True
                break
            self._add(token, added)
            if self._cut() != self.text:
                break
        return True

    def _add(self, token: int, data: bytes) -> None:
        self.counted += [len(self.tokens) >= self.request.options.min_tokens] * len(data)
        self.tokens.append(token)
        self.text += data

    def _accepts(self, token: int) -> bool:
        """Advance the state; False if the token must be drawn again."""
        if self.state is None:
            return True
        left = self.request.max_tokens - self.kept - len(self.tokens) - 1
        try:
            self.state.accept(token, budget=left if self.finish else None)
        except DrawAgain:
            return False
        return True

    def _draw(self, again: int) -> int:
        request = self.request
        mask = None
        if self.state is not None:
            left = request.max_tokens - self.kept - len(self.tokens)
            mask = self.state.mask(budget=left) if self.finish else self.state.mask()
        known = [*request.prompt, *self.tokens]
        asked = Draw(
            request.options.sampling,
            random_key(request.seed, self.text, again),
            self._drawable(mask),
            answer=self.tokens,
            prompt_tokens=np.unique(request.prompt),
        )
        return draw(self.model.logits(known), asked).token_id

    def _drawable(self, mask: Mask | None) -> Mask:
        """The allowed tokens without those that would end the answer early, if any are left."""
        size = self.vocabulary.size
        allowed = set(range(size)) if mask is None else _ids(mask)
        if self.state is not None and self.state.is_complete:
            allowed |= self._silent
        eos, stops = self.vocabulary.eos_ids, set(self.request.options.stop_token_ids)
        choices = [allowed]
        if len(self.tokens) < self.request.options.min_tokens:
            going_on = allowed - eos - self._silent
            choices = [going_on - stops, going_on, allowed]
        elif self.request.options.ignore_eos:
            choices = [allowed - eos, allowed]
        return _packed(next(filter(None, choices)), size)

    def _ends(self, token: int, before: int) -> bool:
        if token in self.vocabulary.eos_ids or token in self._silent:
            return True
        return (
            before >= self.request.options.min_tokens
            and token in self.request.options.stop_token_ids
        )

    @property
    def _silent(self) -> set[int]:
        """Stop tokens without text, which no constraint accepts; empty without a constraint."""
        spelling = self.vocabulary.token_bytes
        if self.state is None:
            return set()
        return {token for token in self.request.options.stop_token_ids if spelling[token] is None}

    def _cut(self) -> bytes:
        """The text up to the first stop string that counts, found byte by byte."""
        for end in range(1, len(self.text) + 1):
            found = [stop for stop in self.request.options.stop if self.text[:end].endswith(stop)]
            if found and self.counted[end - 1]:
                return self.text[: end - max(map(len, found))]
        return self.text


def random_key(seed: int, text: bytes, again: int = 0) -> int:
    """``again``: number of rejected draws of this token."""
    data = (seed & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little") + text
    key = blake2b(data, digest_size=8).digest()
    if again:
        count = key + again.to_bytes(8, "little")
        key = blake2b(count, digest_size=8, person=b"again").digest()
    return int.from_bytes(key, "little")


def _ids(mask: Mask) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


def _packed(ids: set[int], size: int) -> Mask:
    bits = np.zeros(-(-size // 32) * 32, dtype=bool)
    bits[list(ids)] = True
    return np.packbits(bits, bitorder="little").view(np.uint32)
