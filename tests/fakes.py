"""Small fakes of the Protocols of ``app.core``, with real behaviour.

``ByteVocabulary`` and ``ByteTokenizer`` have 256 bytes and a few merges; ``FiniteConstraint`` is a
finite list of answers, worked out by brute force; ``ScriptedRunner`` is a model whose logits depend
on every token it reads back through the block tables and the slots for recurrent states, so that a
wrong cache gives wrong answers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.cache import CacheGroup, StateSlots
from app.core.constraint import Mask, Relaxation
from app.core.errors import RejectedToken
from app.core.json_scan import JsonScan, Place
from app.core.step import (
    NOT_DRAWN,
    Draw,
    PendingDraws,
    SampledToken,
    Span,
    StepResult,
    TokenLogprob,
)
from app.core.text import RenderedPrompt
from app.core.verbatim import Hole, Source

MERGES = (
    (b"n", b"a"),
    (b"m", b"e"),
    (b"na", b"me"),
    (b"{", b'"'),
    (b'"', b":"),
    (b'":', b" "),
    (b'": ', b'"'),
    (b'"', b","),
    (b'",', b" "),
    (b'", ', b'"'),
    (b'"', b"}"),
    (b"a", b"b"),
    (b"ab", b"ab"),
    (b"1", b"2"),
    (b"l", b"l"),
    (b"\xc3", b"\xa9"),
    (b"o", b"r"),
    (b"x", b"y"),
    (b"w", b"x"),
    (b"y", b"z"),
)
"""Pairs that the tokenizer merges, the earlier ones first (byte-pair encoding).

"wxyz" becomes w, xy, z although wx, yz would be shorter.
"""


class ByteVocabulary:
    """Tokens 0 to 255 are the bytes, then one token for each merge, a special one, and eos."""

    def __init__(self, merges: Sequence[tuple[bytes, bytes]] = MERGES) -> None:
        pieces = [bytes([byte]) for byte in range(256)] + [left + right for left, right in merges]
        self.merges = tuple(merges)
        self.ids = {piece: token for token, piece in enumerate(pieces)}
        self.special = len(pieces)
        self.eos = self.special + 1
        self._token_bytes: tuple[bytes | None, ...] = (*pieces, None, None)

    @property
    def size(self) -> int:
        return len(self._token_bytes)

    @property
    def eos_ids(self) -> frozenset[int]:
        return frozenset({self.eos})

    @property
    def token_bytes(self) -> Sequence[bytes | None]:
        return self._token_bytes

    def spell(self, tokens: Iterable[int]) -> bytes:
        return b"".join(self._token_bytes[token] or b"" for token in tokens)


class ByteTokenizer:
    """Byte-pair encoding with the merges of a ``ByteVocabulary``; a chat is its messages' text."""

    def __init__(self, vocabulary: ByteVocabulary) -> None:
        self._vocabulary = vocabulary
        self._ids = vocabulary.ids
        self._ranks = {pair: rank for rank, pair in enumerate(vocabulary.merges)}

    def encode(self, text: str) -> list[int]:
        pieces = [bytes([byte]) for byte in text.encode()]
        while True:
            pairs = [
                (self._ranks[pair], index)
                for index, pair in enumerate(pairwise(pieces))
                if pair in self._ranks
            ]
            if not pairs:
                return [self._ids[piece] for piece in pieces]
            _, index = min(pairs)
            pieces[index : index + 2] = [pieces[index] + pieces[index + 1]]

    def encode_prompt(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return self.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._vocabulary.spell(tokens).decode(errors="replace")

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        opens: bool = True,
    ) -> RenderedPrompt:
        text = "".join(message["content"] for message in messages)
        return RenderedPrompt(self.encode(text), text[-64:])


class FiniteState:
    def __init__(self, constraint: FiniteConstraint, text: bytes) -> None:
        self._constraint = constraint
        self._text = text

    gave_up = False

    def mask(self, budget: int | None = None, *, work: int | None = None) -> Mask:
        mask = self._constraint.mask(self._text, budget)
        assert budget is None or mask.any(), "no token fits the budget"
        return mask

    def is_closing(self, mask: Mask, plain: Mask) -> bool:
        scan = JsonScan()
        for byte in self._text:
            scan.push(byte)

        going_on = _going_on(self._constraint.vocabulary, scan.place is Place.STRING)
        left, before = (
            np.unpackbits(each.view(np.uint8), bitorder="little")[going_on].any()
            for each in (mask, plain)
        )
        return bool(before and not left)

    def prepare(self, *, work: int) -> None:
        pass

    def accept(self, token_id: int, *, budget: int | None = None) -> None:
        data = self._constraint.vocabulary.token_bytes[token_id]
        if data is None:
            raise RejectedToken(f"token {token_id} spells nothing")
        self.accept_bytes(data)

    def accept_bytes(self, data: bytes) -> None:
        if not self._constraint.candidates(self._text + data):
            raise RejectedToken(f"{data!r} cannot follow {self._text!r}")
        self._text += data

    def forced(self) -> bytes:
        candidates = self._constraint.candidates(self._text)
        end = len(self._text)
        while not any(len(candidate) == end for candidate in candidates):
            if len({candidate[end] for candidate in candidates}) > 1:
                break
            end += 1
        return candidates[0][len(self._text) : end]

    @property
    def state_id(self) -> tuple[bytes, ...]:
        rests = (c[len(self._text) :] for c in self._constraint.candidates(self._text))
        return tuple(sorted(rests))

    @property
    def is_complete(self) -> bool:
        return self._text in self._constraint.answers

    @property
    def is_final(self) -> bool:
        return self._constraint.candidates(self._text) == (self._text,)

    def shortest_completion(self) -> bytes:
        rests = [c[len(self._text) :] for c in self._constraint.candidates(self._text)]
        return min(rests, key=len)

    def shortest_tokens(self, limit: int | None = None) -> int:
        return self._constraint.shortest(self._text)

    def fits(self, budget: int) -> bool:
        return self.shortest_tokens() <= budget

    def quoted(self, most: int) -> bytes:
        return b""

    def can_extend(self, tail: bytes) -> bool:
        assert self._text.endswith(tail)
        before = self._text[: len(self._text) - len(tail)]
        return any(
            len(piece) > len(tail)
            and piece.startswith(tail)
            and bool(self._constraint.candidates(before + piece))
            for piece in self._constraint.vocabulary.ids
        )

    def copy(self, *, work: int | None = None) -> FiniteState:
        return type(self)(self._constraint, self._text)


class FiniteConstraint:
    """The answers are exactly ``answers``: a finite language, so everything is brute force.

    ``tight``: whether ``shortest_tokens`` is exact, or counts bytes (an upper bound).
    """

    state: type[FiniteState] = FiniteState

    def __init__(
        self, answers: Iterable[bytes], vocabulary: ByteVocabulary, *, tight: bool = True
    ) -> None:
        self.answers = tuple(sorted(set(answers)))
        self.vocabulary = vocabulary
        self._tight = tight
        self._candidates: dict[bytes, tuple[bytes, ...]] = {}
        self._covers: dict[bytes, int] = {b"": 0}
        self._after = cache(self._needed_after)
        self._masks: dict[tuple[bytes, int | None], Mask] = {}

    def start(self) -> FiniteState:
        return self.state(self, b"")

    @property
    def holes(self) -> Sequence[Hole]:
        return ()

    @property
    def relaxed(self) -> Sequence[Relaxation]:
        return ()

    def bind(self, documents: Mapping[Source, Any]) -> FiniteConstraint:
        return self

    @property
    def nbytes(self) -> int:
        return sum(mask.nbytes for mask in self._masks.values())

    @property
    def num_states(self) -> int:
        return len(self._candidates)

    @property
    def num_masks(self) -> int:
        return len(self._masks)

    def candidates(self, prefix: bytes) -> tuple[bytes, ...]:
        if prefix not in self._candidates:
            ends = prefix, prefix + b"\xff"  # a byte that no answer has
            begin, end = (bisect_left(self.answers, each) for each in ends)
            self._candidates[prefix] = self.answers[begin:end]
        return self._candidates[prefix]

    def shortest(self, prefix: bytes) -> int:
        rests = [answer[len(prefix) :] for answer in self.candidates(prefix)]
        return min(map(self._cover, rests)) if self._tight else min(map(len, rests))

    def _cover(self, text: bytes) -> int:
        """The fewest tokens that spell ``text``."""
        if text not in self._covers:
            self._covers[text] = 1 + min(
                self._cover(text[len(piece) :])
                for piece in self.vocabulary.ids
                if text.startswith(piece)
            )
        return self._covers[text]

    def _needed_after(self, prefix: bytes) -> list[tuple[int, int]]:
        """The tokens that may follow ``prefix``, and how many each needs after it."""
        pieces = self.vocabulary.ids.items()
        after = [(token, prefix + piece) for piece, token in pieces]
        return [(token, self.shortest(text)) for token, text in after if self.candidates(text)]

    def mask(self, prefix: bytes, budget: int | None) -> Mask:
        key = (prefix, budget)
        if key not in self._masks:
            bits = np.zeros(-(-self.vocabulary.size // 32) * 32, dtype=bool)
            for token, needed in self._after(prefix):
                bits[token] = budget is None or needed <= budget - 1
            bits[self.vocabulary.eos] = prefix in self.answers
            mask = np.packbits(bits, bitorder="little").view(np.uint32).copy()
            mask.flags.writeable = False
            self._masks[key] = mask
        return self._masks[key]


@cache
def _going_on(vocabulary: ByteVocabulary, in_string: bool) -> list[int]:
    """Tokens that do not close a string, or else an array or object."""
    pieces = vocabulary.ids.items()
    if in_string:
        return [token for piece, token in pieces if b'"' not in piece]
    return [token for piece, token in pieces if piece[0] not in b"]}"]


Logits = NDArray[np.float64]


@lru_cache(1 << 12)
def _hashed(seen: bytes, size: int) -> Logits:
    seed = int.from_bytes(blake2b(seen, digest_size=8).digest(), "little")
    return np.random.default_rng(seed).normal(scale=2.0, size=size)


class ScriptedModel:
    """Logits as a hash of all tokens before, so that any mistake shows.

    With ``by_bytes`` they depend only on the text, and single bytes are always preferred to
    merges: then greedy text does not depend on how it was split into tokens.
    """

    def __init__(
        self, vocabulary: ByteVocabulary, *, by_bytes: bool = False, eos: float = 0.0
    ) -> None:
        self._vocabulary = vocabulary
        self._by_bytes = by_bytes
        self._eos = eos

    def logits(self, tokens: Sequence[int]) -> Logits:
        seen = (
            self._vocabulary.spell(tokens)
            if self._by_bytes
            else np.asarray(tokens, dtype=np.int64).tobytes()
        )
        logits = _hashed(seen, self._vocabulary.size).copy()
        logits[self._vocabulary.eos] += self._eos
        if self._by_bytes:
            logits[256 : self._vocabulary.special] -= 1000.0
        return logits


def draw(logits: Logits, asked: Draw) -> SampledToken:
    """One token by the rules of ``SamplingParams``, as far as tests use them, and its scores."""
    if asked.scored:
        own = replace(asked, scored=())
        drawn = NOT_DRAWN if asked.mask is None else draw(logits, own)
        whole = np.logaddexp.reduce(logits)
        sets = [np.logaddexp.reduce(logits[ids], initial=-np.inf) for ids in asked.scored]
        return replace(drawn, scores=tuple(float(part - whole) for part in sets))
    logits = logits.copy()
    if asked.params.frequency_penalty:
        for token in asked.answer:
            logits[token] -= asked.params.frequency_penalty
    if asked.mask is not None:
        allowed = np.unpackbits(asked.mask.view(np.uint8), bitorder="little")[: len(logits)]
        logits[allowed == 0] = -np.inf
    noisy = logits
    if asked.params.temperature > 0:
        noise = np.random.default_rng(asked.key).gumbel(size=len(logits))
        noisy = logits / asked.params.temperature + noise
    token = int(noisy.argmax())
    if asked.params.logprobs is None:
        return SampledToken(token)
    with np.errstate(divide="ignore"):
        logprobs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    best = [int(i) for i in np.argsort(-logprobs)[: asked.params.logprobs]]
    top = tuple(TokenLogprob(i, float(logprobs[i])) for i in best if logprobs[i] > -np.inf)
    return SampledToken(token, float(logprobs[token]), top)


class Group(NamedTuple):
    """A cache group of a runner; ``window`` is None for full attention."""

    num_blocks: int
    window: int | None = None


Table = Sequence[int] | NDArray[np.int32]


class ScriptedRunner:
    """A runner whose cache holds the tokens themselves, with their positions.

    Launching writes the span into its slots; logits come from reading every position back through
    the block tables. Fails if a slot holds another position, if two sequences write a block, or if
    one reads a block that another writes.

    In a group with a window, a slot holds all tokens up to its position that its token could see
    (keys and values of a layer depend on what earlier layers read). Only the window is read.

    With ``states`` it has recurrent layers as well, or only these: a state slot holds all tokens of
    its state. Fails if a step breaks the rules of ``Span`` for slots.
    """

    def __init__(
        self,
        model: ScriptedModel,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        max_model_len: int = 4096,
        groups: Sequence[Group] | None = None,
        states: StateSlots | None = None,
    ) -> None:
        """``groups``: cache groups; None for one of ``num_blocks`` blocks."""
        self._model = model
        self._groups = (Group(num_blocks),) if groups is None else tuple(groups)
        self._states = states
        self._kept: dict[int, tuple[int, ...]] = {0: ()}
        """By state slot, all tokens before the position of its state."""
        assert self._groups or states, "there is neither a cache nor states"
        self._block_size = block_size
        self._max_model_len = max_model_len
        self._slots: list[dict[int, tuple[int, tuple[int, ...]]]] = [{} for _ in self._groups]
        """By group and slot: a position and its token, or with a window all tokens up to it."""
        self._launched: list[tuple[list[int], Logits]] | None = None
        self._drawn: list[int] = []
        """The ids of the last draws, as an accelerator keeps them."""
        self.plans: list[Sequence[Span]] = []

    @property
    def block_size(self) -> int:
        return self._block_size

    @property
    def cache_groups(self) -> Sequence[CacheGroup]:
        return self._groups

    @property
    def states(self) -> StateSlots | None:
        return self._states

    @property
    def max_model_len(self) -> int:
        return self._max_model_len

    @property
    def trees(self) -> bool:
        return self._states is None

    def launch(self, plan: Sequence[Span]) -> None:
        assert self._launched is None, "launch and sample alternate"
        assert plan, "an empty plan"
        self.plans.append(plan)
        self._check_features(plan)
        self._launched = self._compute(plan)

    def sample(self, draws: Sequence[Draw | None]) -> PendingDraws:
        assert self._launched is not None, "sample before launch"
        launched, self._launched = self._launched, None
        return StepResult(self._draw(launched, draws))

    def _check_features(self, plan: Sequence[Span]) -> None:
        for span in plan:
            for each in () if span.vision_input is None else span.vision_input.images:
                assert each.features is not None, "a step needs missing features"

    def _compute(self, plan: Sequence[Span]) -> list[tuple[list[int], Logits]]:
        for span in plan:
            assert span.tokens
            assert span.start + len(span.tokens) <= self._max_model_len
        for number, group in enumerate(self._groups):
            self._write(number, group, plan)
        scanned = self._scan(plan)
        seen = scanned or [()] * len(plan)
        return [
            self._logits(span, at, own)
            for span, own in zip(plan, seen, strict=True)
            for at in span.rows
        ]

    def _scan(self, plan: Sequence[Span]) -> list[tuple[int, ...]]:
        """For each span, all tokens up to its end; those before the span come from its state."""
        if self._states is None:
            assert not any(span.state or span.saves for span in plan)
            return []
        reads = [span.state for span in plan]
        written: dict[int, int] = {}
        scanned = [(*self._kept[span.state], *self._tokens(span)) for span in plan]
        for index, (span, seen) in enumerate(zip(plan, scanned, strict=True)):
            before = len(seen) - len(span.tokens)
            assert before == span.start, "the slot holds the state at another position"
            offsets = [offset for offset, _ in span.saves]
            assert offsets == sorted(set(offsets)), "saves are not ascending"
            assert all(0 < offset <= len(span.tokens) for offset in offsets)
            for offset, slot in span.saves:
                assert 0 < slot < self._states.count, "no such slot to write"
                assert slot not in written, "a slot is written twice"
                others = [*reads[:index], *reads[index + 1 :]]
                assert slot not in others, "a slot is written that another span reads"
                written[slot] = index
                self._kept[slot] = seen[: before + offset]
        return scanned

    def _write(self, number: int, group: Group, plan: Sequence[Span]) -> None:
        written: dict[int, int] = {}
        for index, span in enumerate(plan):
            table, start = span.block_tables[number], span.start
            seen = tuple(self._read(number, table, self._first_read(group, start), start))
            if span.tree:
                assert len(span.tree) == len(span.tokens)
                for place in range(start, start + len(span.tokens)):  # nothing of it stays cached
                    block, slot = self._place(number, table, place)
                    assert written.setdefault(block, index) == index, "two sequences write a block"
                    self._slots[number][slot] = (-1, ())
                continue
            for position, token in enumerate(self._tokens(span), start):
                block, slot = self._place(number, table, position)
                assert written.setdefault(block, index) == index, "two sequences write a block"
                seen = (token,) if group.window is None else (*seen, token)
                self._slots[number][slot] = (position, seen)
        for index, span in enumerate(plan):
            first = self._first_read(group, span.start) // self._block_size
            for block in span.block_tables[number][first:]:
                assert written.get(int(block), index) == index, "a shared block is written"

    def _tokens(self, span: Span) -> Sequence[int]:
        if span.drawn_by is None:
            return span.tokens
        assert tuple(span.tokens) == (0,)
        token = self._drawn[span.drawn_by]
        assert token != NOT_DRAWN.token_id, "nothing was drawn for the span"
        return (token,)

    def _draw(
        self, launched: Sequence[tuple[list[int], Logits]], draws: Sequence[Draw | None]
    ) -> list[SampledToken]:
        assert len(draws) == len(launched)
        tokens: list[SampledToken] = []
        for (seen, logits), asked in zip(launched, draws, strict=True):
            if asked is not None and asked.answer:
                start = len(seen) - len(asked.answer)
                assert [*asked.answer] == seen[start:], "the answer is not what was computed"
            if asked is not None and asked.prompt_tokens is not None:
                start = len(seen) - len(asked.answer)
                assert asked.prompt_tokens.tolist() == sorted({*seen[:start]})
            tokens.append(NOT_DRAWN if asked is None else draw(logits, asked))
        self._drawn = [token.token_id for token in tokens]
        return tokens

    def _logits(self, span: Span, at: int, scanned: tuple[int, ...]) -> tuple[list[int], Logits]:
        """The tokens up to a row, read from the cache, and the logits after them."""
        assert 0 <= at < len(span.tokens)
        position = reader = span.start + at
        assert len(span.block_tables) == len(self._groups)
        if span.tree:
            position, reader = span.start - 1, span.start
        read = [
            self._read(i, span.block_tables[i], self._first_read(group, reader), position + 1)
            for i, group in enumerate(self._groups)
        ]
        if scanned:
            read.append([*scanned[: position + 1]])
        tokens, *others = read
        assert all(other == tokens for other in others), "layers hold different tokens"
        tokens = [*tokens, *_way(span, at)]
        return tokens, self._model.logits(tokens)

    def _read(self, group: int, table: Table, first: int, end: int) -> list[int]:
        """All tokens before ``end``, from the slots of the positions ``first`` to ``end - 1``."""
        held: list[tuple[int, ...]] = []
        for position in range(first, end):
            written_for, tokens = self._slots[group].get(
                self._place(group, table, position)[1], (-1, ())
            )
            assert written_for == position, "the slot holds another position"
            held.append(tokens)
        if self._groups[group].window is None:
            return [token for (token,) in held]
        for position, tokens in enumerate(held, first):
            assert tokens == held[-1][: position + 1], "the slot holds another text"
        return list(held[-1]) if held else []

    @staticmethod
    def _first_read(group: Group, position: int) -> int:
        """The first position that the token at ``position`` reads."""
        if group.window is None:
            return 0
        assert group.window > 1, "a window holds at least the token before"
        return max(0, position - group.window + 1)

    def _place(self, group: int, table: Table, position: int) -> tuple[int, int]:
        """Block and slot of a position."""
        index, offset = divmod(position, self._block_size)
        block = int(table[index])
        assert 0 <= block < self._groups[group].num_blocks
        return block, block * self._block_size + offset


def _way(span: Span, offset: int) -> list[int]:
    """Tokens on the path to ``offset`` in the tree of a span; empty for spans without a tree."""
    way: list[int] = []
    while span.tree and offset >= 0:
        assert span.tree[offset] < offset, "a parent comes after its child"
        way.insert(0, span.tokens[offset])
        offset = span.tree[offset]
    return way


class QueuedRunner(ScriptedRunner):
    """Computes each step when its draws are waited for, in the order of launches.

    So an engine cannot use results before it waits for them, and the new owners of blocks that it
    gave away write them after all earlier launches.
    """

    def __init__(
        self,
        model: ScriptedModel,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        max_model_len: int = 4096,
        groups: Sequence[Group] | None = None,
        states: StateSlots | None = None,
    ) -> None:
        super().__init__(
            model,
            num_blocks=num_blocks,
            block_size=block_size,
            max_model_len=max_model_len,
            groups=groups,
            states=states,
        )
        self._plan: Sequence[Span] | None = None
        self._queue: deque[_QueuedDraws] = deque()
        self.most_queued = 0
        """Maximum steps that were launched and not yet waited for."""

    def launch(self, plan: Sequence[Span]) -> None:
        assert self._plan is None, "launch and sample alternate"
        assert plan, "an empty plan"
        self._plan = [
            replace(s, block_tables=[[*table] for table in s.block_tables], saves=[*s.saves])
            for s in plan
        ]
        self.plans.append(self._plan)
        self._check_features(self._plan)
        self.most_queued = max(self.most_queued, len(self._queue) + 1)

    def sample(self, draws: Sequence[Draw | None]) -> PendingDraws:
        assert self._plan is not None, "sample before launch"
        plan, self._plan = self._plan, None
        self._queue.append(_QueuedDraws(self, plan, draws))
        return self._queue[-1]

    def run(self, asked: _QueuedDraws) -> StepResult:
        """Compute the step of ``asked``, which must be the oldest in the queue."""
        assert self._queue.popleft() is asked, "waited for out of order"
        return StepResult(self._draw(self._compute(asked.plan), asked.draws))


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedDraws:
    runner: QueuedRunner
    plan: Sequence[Span]
    draws: Sequence[Draw | None]

    def wait(self) -> StepResult:
        return self.runner.run(self)
