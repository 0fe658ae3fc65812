"""Random texts of a constraint, in which marks and parts of marks are likely."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jsonschema
import numpy as np

from app.answer.incoming import ArgumentsReader, JsonPart
from app.answer.pieces import CallArguments, CallEnd, CallStart, Content, Reasoning
from app.answer.pieces import TextPiece as Piece
from app.answer.reader import AnswerReader
from app.constraint import Compiler
from app.core.constraint import Constraint, ConstraintSpec, ConstraintState
from app.core.errors import DrawAgain, RejectedToken
from app.text import Vocabulary
from tests.constraint.walks import Walker as ConstraintWalker
from tests.wide import many


class Walker:
    """Walks constraints over a vocabulary of bytes and of strings that are likely to confuse."""

    def __init__(self, strings: Iterable[str]) -> None:
        spelled = [bytes([byte]) for byte in range(256)]
        spelled += sorted({string.encode() for string in strings if len(string.encode()) > 1})
        self._tokens = spelled
        self._eos = len(spelled)
        self._compiler = Compiler(Vocabulary([*spelled, None], [self._eos]))
        self._compiled: dict[str, Constraint] = {}

    def text(
        self, spec: ConstraintSpec | None, randoms: random.Random, budget: int = 40, start: str = ""
    ) -> str | None:
        """A complete text of ``spec`` that begins with ``start``; None if there is none.

        At most ``budget`` tokens follow ``start``.
        """
        state = self._start(spec)
        written = start.encode()
        try:
            state.accept_bytes(written)
        except RejectedToken:
            return None
        left = budget
        while left > 0:
            mask = state.mask(left)
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
            allowed = [int(token) for token in np.flatnonzero(bits[: self._eos + 1])]
            ends = self._eos in allowed
            if ends and (len(allowed) == 1 or randoms.random() < 0.1):
                return written.decode()
            strings = [token for token in allowed if 256 <= token < self._eos]
            readable = [token for token in allowed if token == 10 or 32 <= token < 127]
            choices = [each for each in (strings, readable, allowed) if each]
            token = randoms.choice(randoms.choices(choices, [8, 3, 1][-len(choices) :])[0])
            if token == self._eos:
                return written.decode()
            try:
                state.accept(token, budget=left - 1)
            except DrawAgain:
                continue
            written += self._tokens[token]
            left -= 1
        assert state.is_complete
        return written.decode()

    def admits(self, spec: ConstraintSpec | None, text: str) -> bool:
        state = self._start(spec)
        try:
            state.accept_bytes(text.encode())
        except RejectedToken:
            return False
        return state.is_complete

    def forced(self, spec: ConstraintSpec | None) -> str:
        """The prefix that every text of ``spec`` has."""
        return self._start(spec).forced().decode()

    def _start(self, spec: ConstraintSpec | None) -> ConstraintState:
        assert spec is not None, "the answer has no constraint"
        key = spec.cache_key()
        if key not in self._compiled:
            self._compiled[key] = self._compiler.compile(spec)
        return self._compiled[key].start()


def read(reader: AnswerReader, chunks: Sequence[str]) -> list[Piece]:
    """The pieces of an answer in ``chunks``; consecutive parts of one piece are joined."""
    pieces = [piece for chunk in chunks for piece in reader.push(chunk)] + reader.finish()
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        match last, piece:
            case Content(), Content():
                joined[-1] = Content(last.text + piece.text, last.start)
                assert last.end == piece.start
            case Reasoning(), Reasoning() if last.end == piece.start:
                joined[-1] = Reasoning(last.text + piece.text, last.start)
            case CallArguments(), CallArguments():
                joined[-1] = CallArguments(
                    last.index, last.text + piece.text, last.start, piece.end
                )
                assert last.end == piece.start
            case _:
                joined.append(piece)
    return joined


def cut(text: str, randoms: random.Random) -> list[str]:
    """``text`` in chunks of random sizes, most of them small."""
    chunks = []
    while text:
        size = randoms.choice([1, 1, 2, 3, 7, 40])
        chunks.append(text[:size])
        text = text[size:]
    return chunks


def calls(pieces: Iterable[Piece]) -> list[tuple[str, str]]:
    """Names and arguments of the complete calls."""
    found: list[tuple[str, str]] = []
    name = arguments = ""
    for piece in pieces:
        match piece:
            case CallStart():
                name, arguments = piece.name, ""
            case CallArguments():
                arguments = piece.text
            case CallEnd():
                found.append((name, arguments))
    return found


def content(pieces: Iterable[object]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Content))


def reasoning(pieces: Iterable[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Reasoning))


def read_arguments(
    reader: ArgumentsReader, chunks: Sequence[str]
) -> tuple[list[JsonPart], str | None]:
    """The parts of arguments, and the text after them; None if they have not ended."""
    parts, at, behind = [], 0, ""
    for chunk in chunks:
        if reader.rest is None:
            parts += reader.push(chunk, at)
        else:
            behind += chunk
        at += len(chunk)
    return parts, None if reader.rest is None else reader.rest + behind


def check_arguments(
    walker: ConstraintWalker,
    read: Callable[[Sequence[str]], tuple[list[JsonPart], str | None]],
    schema: Mapping[str, Any],
    end: str,
) -> None:
    """Check that random texts of ``walker`` read as valid objects before ``end``."""
    rng, validator = random.Random(1), jsonschema.Draft202012Validator({"type": "object", **schema})
    for _ in range(many(12, 2)):
        text = walker.sample(rng, rng.randint(0, 150)).decode()
        parts, rest = read([text])
        value = json.loads(joined(parts))
        assert validator.is_valid(value), (text, value)
        assert rest == end
        cuts = sorted(rng.sample(range(len(text)), min(len(text), 4)))
        split = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        for chunks in (split, list(text)):
            again, rest = read(chunks)
            assert (joined(again), rest) == (joined(parts), end)
            places = [place for part in again for place in (part.start, part.end)]
            assert places[1:-1:2] == places[2::2]
            assert (places[0], places[-1]) == (0, len(text) - len(end))


def joined(parts: Sequence[JsonPart]) -> str:
    """The JSON text of all parts together."""
    return "".join(part.text for part in parts)
