"""Random schemas and sets of texts with known choices, whose probabilities come from brute force.

``python -m tests.engine.choice_oracle --schemas 1000`` compares every choice that an engine scores
to an enumeration: with a vocabulary of bytes, of all texts; with one that has merges, of all token
paths that follow the tokenizer's split, except for the last token. The same number of sets of
texts that are not JSON is checked in the same way.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from app.constraint import Compiler, JsonSchema
from app.core.choices import ChoosingState, ScoredChoice, Way
from app.core.constraint import Constraint
from app.core.json_scan import CHOICES, JsonScan, Place
from app.core.request import ChoiceOptions, EngineRequest, GenerationOptions, SamplingParams
from app.engine import Engine, EngineConfig
from app.engine.sequence import Sequence
from tests.engine.choice_schemas import TextSpec, random_schema, random_texts
from tests.fakes import (
    MERGES,
    ByteTokenizer,
    ByteVocabulary,
    Logits,
    QueuedRunner,
    ScriptedModel,
    ScriptedRunner,
)
from tests.integrity import check_engine

TOLERANCE = 1e-5
"""Largest error of a probability, since logits are rounded to float32."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A vocabulary, its tokenizer, and a model whose logits are rounded to float32."""

    vocabulary: ByteVocabulary
    tokenizer: ByteTokenizer
    model: ScriptedModel
    compiler: Compiler

    @staticmethod
    def of(*merges: tuple[bytes, bytes]) -> Bench:
        vocabulary = ByteVocabulary(merges)
        model = _Float32Model(vocabulary)
        return Bench(vocabulary, ByteTokenizer(vocabulary), model, Compiler(vocabulary))

    def engine(self, config: EngineConfig | None = None, *, overlap: bool = False) -> Engine:
        config = replace(config or EngineConfig(), overlap=overlap)
        kind = QueuedRunner if overlap else ScriptedRunner
        runner = kind(self.model, num_blocks=400)
        return Engine(runner, self.vocabulary, self.tokenizer, config)

    def compile(self, schema: Any) -> Constraint:
        spec = schema if isinstance(schema, TextSpec) else JsonSchema(schema, close_objects=True)
        return self.compiler.compile(spec)

    def request(self, allowed: Constraint, seed: int, options: ChoiceOptions) -> EngineRequest:
        return EngineRequest(
            request_id=f"r{seed}",
            prompt=self.tokenizer.encode("say: "),
            max_tokens=400,
            options=GenerationOptions(sampling=SamplingParams(temperature=1.0)),
            seed=seed,
            constraint=allowed,
            choices=options,
        )

    def log_probability(self, before: Seq[int], tokens: Iterable[int]) -> float:
        """Log-probability that the token after ``before`` is one of ``tokens``."""
        logits, whole = _scored(self.model, tuple(before))
        return float(np.logaddexp.reduce(logits[[*tokens]]) - whole)


@lru_cache(1 << 12)
def _scored(model: ScriptedModel, before: tuple[int, ...]) -> tuple[Logits, float]:
    """The logits after ``before``, and the logarithm of the sum of their exponentials."""
    logits = model.logits(before)
    return logits, float(np.logaddexp.reduce(logits))


class _Float32Model(ScriptedModel):
    def logits(self, tokens: Seq[int]) -> Any:
        return super().logits(tokens).astype(np.float32).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Context:
    """The context that a choice is scored from: tokens, and the number of answer bytes in them."""

    tokens: tuple[int, ...]
    length: int


def run(
    bench: Bench, engine: Engine, one: EngineRequest
) -> tuple[bytes, list[tuple[ScoredChoice, Context]]]:
    """The answer to a request, and the choices scored in it, each with its context."""
    engine.add(one)
    text = b""
    choices: list[tuple[ScoredChoice, Context]] = []
    contexts: dict[tuple[int, Place], Context] = {}
    scorer = engine._decoder._scorer  # only to record the contexts
    finish = scorer.finish

    def watched(sequence: Sequence) -> None:
        scoring = sequence.scoring
        assert scoring is not None
        tokens = sequence.tokens[: scoring.base]
        length = len(bench.vocabulary.spell(tokens[len(one.prompt) :]))
        contexts[scoring.found.start, scoring.found.place] = Context(tuple(tokens), length)
        finish(sequence)

    scorer.finish = watched  # type: ignore[method-assign]
    while engine.has_work:
        for output in engine.step():
            for chunk in output.chunks:
                text += chunk.data
                choices += [(each, contexts[each.start, each.place]) for each in chunk.choices]
                assert chunk.finish_reason in (None, "stop"), chunk
        check_engine(engine)
    return text, choices


def check(bench: Bench, schema: Any, seed: int, options: ChoiceOptions, *, overlap: bool) -> int:
    """Compare every choice of one answer to brute force; return the number of choices."""
    allowed = bench.compile(schema)
    one = bench.request(allowed, seed, options)
    text, choices = run(bench, bench.engine(overlap=overlap), one)
    if not options.is_text:
        json.loads(text)
    assert [(each.start, each.place) for each, _ in choices] == places(
        text, allowed, is_text=options.is_text
    ), text
    for choice, context in choices:
        if context.length < choice.start:
            assert text[context.length : choice.start], "a context ends after its choice"
        for each in choice.ways:
            if options.is_text:
                others = [other.way.text for other in choice.ways]
                expected = _of_text(bench, context, each.way.text, others)
            else:
                expected = _by_paths(bench, allowed, text, context, choice.start, each.way)
            assert abs(math.exp(each.logprob) - math.exp(expected)) < TOLERANCE, (choice, expected)
    return len(choices)


def places(text: bytes, allowed: Constraint, *, is_text: bool) -> list[tuple[int, Place]]:
    """Positions and kinds of an answer's choices, found in its whole text from left to right."""
    found: list[tuple[int, Place]] = []
    state, scan = allowed.start(), JsonScan()
    if is_text:
        return [(0, Place.TEXT)]

    def ask(at: int, place: Place) -> None:
        assert isinstance(state, ChoosingState)
        choice = state.choice(place)
        if choice is None or not choice.ways:
            return
        whole = place is Place.VALUE and choice.ways[0].kind == "value"
        if whole or len(choice.ways) > 1:
            found.append((at, place))

    ask(0, Place.VALUE)
    for at, byte in enumerate(text):
        before = scan.place
        if before is Place.NUMBER and byte not in b"+-.0123456789Ee":
            scan.end_number()
            before = scan.place
            ask(at, before)
        if before is Place.FIRST_ITEM and byte != ord("]"):
            ask(at, Place.VALUE)
        scan.push(byte)
        state.accept_bytes(bytes([byte]))
        if scan.place in CHOICES and (scan.place is not before or byte in b"[{]}"):
            ask(at + 1, scan.place)
    return found


def _by_paths(
    bench: Bench, allowed: Constraint, text: bytes, context: Context, start: int, way: Way
) -> float:
    """Log-probability of a way: the sum over the token paths that spell it, given its position.

    With a vocabulary of bytes these are all texts. Otherwise all tokens but the last must be those
    of the tokenizer's split.
    """
    before = text[context.length : start]
    logs = []
    for spelled in way.scored:
        whole = before + spelled
        for path, log in _paths(bench, context.tokens, whole):
            if path == _split(bench, text[: context.length], whole)[: len(path)]:
                logs.append(log)
    if way.ends_answer:
        whole = before + way.text
        tokens = _split(bench, text[: context.length], whole)
        log = sum(
            bench.log_probability([*context.tokens, *tokens[:i]], [token])
            for i, token in enumerate([*tokens, bench.vocabulary.eos])
        )
        logs.append(log)
    entering = [
        log
        for path, log in _paths(bench, context.tokens, before)
        if any(path == _split(bench, text[: context.length], before + each)[: len(path)]
               for each in _texts(bench, allowed, text, start))
    ]  # fmt: skip
    return float(np.logaddexp.reduce(logs) - (np.logaddexp.reduce(entering) if before else 0.0))


_BORDERS = [*' \t\r\n.,:;!?)]}"*', "。", "，"]


def _of_text(bench: Bench, context: Context, text: bytes, others: Seq[bytes]) -> float:
    """Log-probability of a text: the sum over the paths that spell it and then the end of the
    answer, or a border that continues no other text."""
    split = _split(bench, b"", text)
    log = sum(
        bench.log_probability([*context.tokens, *split[:i]], [token])
        for i, token in enumerate([*split, bench.vocabulary.eos])
    )
    logs = [log]
    for border in [each.encode() for each in _BORDERS if text]:
        if any(other.startswith(text + border) for other in others):
            continue
        for path, log in _paths(bench, context.tokens, text + border):
            if path == split[: len(path)]:
                logs.append(log)
    return float(np.logaddexp.reduce(logs))


def _texts(bench: Bench, allowed: Constraint, text: bytes, start: int) -> list[bytes]:
    """Texts of all ways of the choice at ``start``."""
    state, scan = allowed.start(), JsonScan()
    state.accept_bytes(text[:start])
    for byte in text[:start]:
        scan.push(byte)
    assert isinstance(state, ChoosingState)
    place = scan.after_value() if scan.place is Place.NUMBER else scan.place
    places = [place, Place.VALUE] if place is Place.FIRST_ITEM else [place]
    choices = [state.choice(each) for each in places]
    return [t for c in choices if c for way in c.ways for t in (*way.scored, way.text)]


def _paths(bench: Bench, context: Seq[int], text: bytes) -> Iterator[tuple[list[int], float]]:
    """Token paths whose last token reaches or passes the end of ``text``: the path without that
    token, and the log-probability of the path with any such token."""
    waiting: list[tuple[list[int], bytes, float]] = [([], b"", 0.0)]
    ids = bench.vocabulary.ids
    while waiting:
        path, spelled, log = waiting.pop()
        rest = text[len(spelled) :]
        for size in range(1, len(rest)):
            if (token := ids.get(rest[:size])) is not None:
                one = bench.log_probability([*context, *path], [token])
                waiting.append(([*path, token], spelled + rest[:size], log + one))
        over = [ids[piece] for piece in ids if rest and piece.startswith(rest)]
        if over:
            yield path, log + bench.log_probability([*context, *path], over)


def _split(bench: Bench, before: bytes, text: bytes) -> list[int]:
    """Tokens of ``text`` after ``before``; those of ``text`` alone if a token would span both."""
    whole = bench.tokenizer.encode((before + text).decode())
    at = 0
    for index, token in enumerate(whole):
        if at == len(before):
            return whole[index:]
        at += len(bench.vocabulary.spell([token]))
    return bench.tokenizer.encode(text.decode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemas", type=int, default=1000, help="number of schemas and of sets")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    choices = 0
    for number in range(options.schemas):
        choices += check_random(options.seed + number)
    print(f"{options.schemas} schemas, {choices} choices: all equal to the enumeration")
    ways = sum(check_random_texts(options.seed + number) for number in range(options.schemas))
    print(f"{ways} sets of texts: all equal to the enumeration")


BYTES = Bench.of()
MERGED = Bench.of(*MERGES)


def check_random(seed: int) -> int:
    """Check the choices in the answer to a random schema; return their number."""
    rng = random.Random(seed)
    schema = random_schema(rng)
    bench = rng.choice([BYTES, MERGED])
    options = ChoiceOptions(report=True, exact=rng.random() < 0.5)
    return check(bench, schema, seed, options, overlap=rng.random() < 0.5)


def check_random_texts(seed: int) -> int:
    """Check the choice of an answer that is one of several random texts; return 1."""
    rng = random.Random(seed)
    spec = random_texts(rng)
    bench = rng.choice([BYTES, MERGED])
    options = ChoiceOptions(report=True, exact=rng.random() < 0.5, is_text=True)
    return check(bench, spec, seed, options, overlap=rng.random() < 0.5)


if __name__ == "__main__":
    main()
