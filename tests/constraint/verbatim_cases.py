"""Random documents and schemas with ``x-verbatim``, with a list of all their answers.

    python -m tests.constraint.verbatim_cases 2000 [seed]

compares 2000 cases to brute force: masks, budgets, and that each value is in its document.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.constraint import AutomatonState, CompiledConstraint
from app.constraint.program import compile_program
from app.constraint.quotes.document import COMBINING, UNSPACED, Document
from app.core.constraint import Mask
from app.core.errors import UnsatisfiableSchema
from app.core.specs import JsonSchema
from tests.fakes import ByteVocabulary, FiniteConstraint

_LETTERS = [
    "a", "b", "é", "日", "😀", '"', "\\", "\n", "\x1f", " ", ".", "_", "ab ", "the cat", "\u0301",
]  # fmt: skip
_PATTERNS = ["a", "^a", r"b$", "^[a-z ]+$", '[\n"]', "^[a-z日]{2,5}$", "é|日"]
_TOKENS = [b'", "', b'"}', b' "', b"\\n", b"\\u00", b'""', b"\xf0\x9f", b'"]', b'["']


@dataclass(frozen=True)
class Case:
    schema: Any
    texts: Sequence[str]
    words: bool
    pieces: frozenset[str]
    """All values of the ``x-verbatim`` string."""
    answers: Sequence[bytes]
    vocabulary: ByteVocabulary

    def constraint(self) -> CompiledConstraint:
        """The constraint, bound to the texts; raises ``UnsatisfiableSchema``."""
        index = VocabularyIndex(self.vocabulary)
        compiled = CompiledConstraint(compile_program(JsonSchema(self.schema)), index)
        return compiled.bind(
            {hole.source: Document(self.texts, words=self.words) for hole in compiled.holes}
        )


def case(rng: random.Random) -> Case:
    texts = [
        "".join(rng.choice(_LETTERS) for _ in range(rng.randint(0, 14)))
        for _ in range(rng.randint(1, 2))
    ]
    words = rng.random() < 0.4
    string: dict[str, Any] = {"type": "string", "x-verbatim": "words" if words else True}
    conditions: list[Callable[[str], bool]] = []
    if rng.random() < 0.5:
        low = string["minLength"] = rng.randint(0, 5)
        conditions.append(lambda piece: len(piece) >= low)
    if rng.random() < 0.4:
        high = string["maxLength"] = rng.randint(1, 8)
        conditions.append(lambda piece: len(piece) <= high)
    kind = rng.random()
    if kind < 0.25:
        pattern = string["pattern"] = rng.choice(_PATTERNS)
        matches = re.compile(pattern.replace("$", r"\Z")).search
        conditions.append(lambda piece: matches(piece) is not None)
    elif kind < 0.4:
        text = rng.choice(texts)
        listed = string["enum"] = [text[i : i + rng.randint(0, 4)] for i in range(3)] + ["zzz", ""]
        conditions.append(lambda piece: piece in listed)
    pieces = frozenset(
        piece for piece in pieces_of(texts, words=words) if all(each(piece) for each in conditions)
    )
    schema, answers = _placed(
        rng.choice(["bare", "object", "null", "other", "list"]), string, pieces
    )
    return Case(schema, texts, words, pieces, answers, _vocabulary(answers, rng))


@cache
def word_pattern() -> re.Pattern[str]:
    """Words and marks, as a regular expression."""
    unspaced = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED)
    codes = [code for first, last in COMBINING for code in range(first, last + 1)]
    marks = "".join(chr(code) for code in codes if unicodedata.category(chr(code))[0] == "M")
    word = rf"(?![{unspaced}{marks}])\w"
    return re.compile(
        rf"(?![{marks}])[{unspaced}][{marks}]*|{word}(?:{word}|[{marks}])*|[^\w\s][{marks}]*"
    )


def pieces_of(texts: Sequence[str], *, words: bool) -> set[str]:
    pieces = {""}
    for text in texts:
        begins = ends = range(len(text) + 1)
        spans = [match.span() for match in word_pattern().finditer(text)]
        if words:
            pieces |= {text[a:b] for a, _ in spans for _, b in spans if a < b}
        else:
            pieces |= {text[a:b] for a in begins for b in ends if a < b}
    return pieces


def _placed(
    place: str, string: dict[str, Any], pieces: frozenset[str]
) -> tuple[Any, Sequence[bytes]]:
    """A schema with the string at ``place``, and all answers of the schema."""
    spelled = [json.dumps(piece, ensure_ascii=False).encode() for piece in sorted(pieces)]
    match place:
        case "bare":
            return string, spelled
        case "null":
            return {"anyOf": [string, {"type": "null"}]}, [*spelled, b"null"]
        case "other":
            others = [b'"n/a"', b'"ab x"']
            listed = {"enum": ["n/a", "ab x"]}
            return {"anyOf": [string, listed]}, sorted({*spelled, *others})
        case "list":
            schema = {"type": "array", "items": string, "maxItems": 1}
            return schema, [b"[]", *(b"[%s]" % each for each in spelled)]
    schema = {
        "type": "object",
        "properties": {"q": string, "n": {"enum": [1, 2]}},
        "required": ["q", "n"],
        "additionalProperties": False,
    }
    return schema, [b'{"q": %s, "n": %d}' % (each, n) for each in spelled for n in (1, 2)]


def _vocabulary(answers: Sequence[bytes], rng: random.Random) -> ByteVocabulary:
    """A vocabulary of single bytes and random pieces of the answers."""
    tokens = dict.fromkeys(_TOKENS)
    for _ in range(120 if answers else 0):
        answer = rng.choice(answers)
        begin = rng.randrange(len(answer))
        tokens[answer[begin : begin + rng.randint(2, 8)]] = None
    return ByteVocabulary([(token, b"") for token in tokens if len(token) > 1])


def check(case: Case, rng: random.Random, walks: int = 3) -> int:
    """Compare random walks to brute force, with and without a budget; return how many masks."""
    try:
        constraint = case.constraint()
    except UnsatisfiableSchema:
        assert not case.answers, case
        return 0
    assert case.answers, case
    oracle = FiniteConstraint(case.answers, case.vocabulary)
    masks = 0
    for number in range(walks):
        state, expected = constraint.start(), oracle.start()
        budget = state.shortest_tokens() + rng.randint(0, 6) if number else None
        text = b""
        while True:
            mask = state.mask()
            assert np.array_equal(mask, expected.mask()), (case, text)
            masks += 1
            allowed = tokens_of(mask if budget is None else _within(state, budget, case))
            assert allowed, (case, text, budget)
            token = rng.choice(allowed)
            if token in case.vocabulary.eos_ids:
                break
            data = case.vocabulary.token_bytes[token] or b""
            text += data
            state.accept(token)
            expected.accept(token)
            if budget is not None:
                budget -= 1
            _check_state(state, case, text)
            assert state.can_extend(data[-1:]) == expected.can_extend(data[-1:]), (case, text)
        assert text in case.answers, (case, text)
    return masks


def _within(state: AutomatonState, budget: int, case: Case) -> Mask:
    assert state.shortest_tokens(budget) <= budget, case
    mask = state.mask(budget=budget)
    assert not (mask & ~state.mask()).any(), case
    return mask


def _check_state(state: AutomatonState, case: Case, text: bytes) -> None:
    """Check ``shortest_completion``, ``forced`` and ``is_complete`` against the list of answers."""
    assert text + state.shortest_completion() in case.answers, (case, text)
    going_on = [answer for answer in case.answers if answer.startswith(text)]
    forced = state.forced()
    assert all(answer.startswith(text + forced) for answer in going_on), (case, text)
    assert state.is_complete == (text in going_on)


def tokens_of(mask: Mask) -> list[int]:
    tokens: list[int] = np.flatnonzero(
        np.unpackbits(mask.view(np.uint8), bitorder="little")
    ).tolist()
    return tokens


def main(count: int, seed: int) -> None:
    rng = random.Random(seed)
    began = time.perf_counter()
    masks = sum(check(case(rng), rng) for _ in range(count))
    seconds = time.perf_counter() - began
    print(f"{count} documents and schemas: {masks} masks equal, 0 values outside "
          f"their document, in {seconds:.0f} s")  # fmt: skip


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]]
    main(*(numbers + [2000, 0][len(numbers) :]))
