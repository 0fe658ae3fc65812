"""Random walks within a budget, and masks: ``python -m tests.conformance.walks --count 10000``.

A walk takes a schema of MaskBench, one of the tokenizers and a random sufficient budget, and draws
every token from the mask under the budget. The answer must be complete within the budget and valid
by the ``jsonschema`` library. With ``--masks``, every other walk compares the mask of one state
with brute force: the bytes of every token of the vocabulary, tried on the expression itself.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app import text
from app.constraint import Compiler, JsonSchema
from app.constraint.automaton.automaton import START
from app.constraint.constraint import AutomatonState, CompiledConstraint
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import Expression
from app.core.constraint import Mask, Vocabulary
from app.core.errors import ConstraintError, DrawAgain
from tests.conformance.tokenizers import tokenizer
from tests.conformance.trials import validator_of
from tools import datasets

WALKS = 10
"""Walks over one schema, so that later ones use memoised masks."""
LONGEST = 600
"""Schemas whose shortest answer has more tokens are skipped, to save time."""


@dataclass
class Report:
    """The results of walks over one schema, or over many."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.counts += other.counts
        self.failures += other.failures


class BruteForce:
    """Computes the mask of a state by trying every token on its expression, byte by byte.

    Tokens are tried in sorted order, so that a shared prefix is stepped through once.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens = sorted(
            (data, token) for token, data in enumerate(vocabulary.token_bytes) if data
        )
        self._vocabulary = vocabulary

    def tokens(self, derivatives: Derivatives, here: Expression) -> set[int]:
        """Tokens that keep ``here`` alive; end of sequence if ``here`` is accepting."""
        allowed = set(self._vocabulary.eos_ids) if derivatives.pool.nullable[here] else set()
        steps: dict[tuple[Expression, int], Expression] = {}
        path, before = [here], b""
        for data, token in self._tokens:
            shared_length = min(len(before), len(data), len(path) - 1)
            while data[:shared_length] != before[:shared_length]:
                shared_length -= 1
            del path[shared_length + 1 :]
            for byte in data[shared_length:]:
                step = (path[-1], byte)
                if step not in steps:
                    steps[step] = derivatives.derivative(*step)
                path.append(steps[step])
                if path[-1] == derivatives.pool.empty:
                    break
            if path[-1] != derivatives.pool.empty and len(path) == len(data) + 1:
                allowed.add(token)
            before = data
        return allowed


def tokens_of(mask: Mask) -> NDArray[np.intp]:
    """The tokens of a mask, ascending."""
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))


def walk(
    constraint: CompiledConstraint,
    vocabulary: Vocabulary,
    schema: Any,
    rng: random.Random,
    check: BruteForce | None = None,
) -> Iterator[str]:
    """Do one walk and yield its errors. With ``check``, compare one mask on the way."""
    state = constraint.start()
    needed = state.shortest_tokens()
    budget = needed + rng.choice([0, 0, 1, 2, 3, 5, 10, 30, 100])
    checked_at = rng.randrange(max(budget, 1)) if check else -1
    answer, left = bytearray(), budget
    while left > 0:
        if left == checked_at and check:
            yield from _compare(state, constraint, check, bytes(answer))
        allowed = tokens_of(state.mask(budget=left))
        if not len(allowed):
            yield f"no token within a budget of {left} after {bytes(answer)!r}"
            return
        token = int(allowed[rng.randrange(len(allowed))])
        if not state.mask()[token >> 5] >> (token & 31) & 1:
            yield f"token {token} of the budget's mask is not in the mask after {bytes(answer)!r}"
        if token in vocabulary.eos_ids:
            break
        try:
            state.accept(token, budget=left - 1)
        except DrawAgain:
            continue
        answer += vocabulary.token_bytes[token] or b""
        left -= 1
    if not state.is_complete:
        yield f"a budget of {budget} (needed: {needed}) truncates {bytes(answer)!r}"
        return
    yield from _invalid(schema, bytes(answer))


def _compare(
    state: AutomatonState, constraint: CompiledConstraint, check: BruteForce, answer: bytes
) -> Iterator[str]:
    automaton = constraint.automaton
    expression = automaton.expression(automaton.step(START, answer))
    expected = check.tokens(automaton.derivatives, expression)
    found = {int(token) for token in tokens_of(state.mask())}
    if found != expected:
        missing, extra = sorted(expected - found)[:5], sorted(found - expected)[:5]
        yield f"the mask after {answer!r} lacks {missing} and has {extra} in excess"


def _invalid(schema: Any, answer: bytes) -> Iterator[str]:
    try:
        value = json.loads(answer)
    except ValueError as error:
        yield f"{answer!r} is not JSON: {error}"
        return
    try:
        valid = validator_of(schema).is_valid(value)
    except Exception:  # the library cannot use the schema
        return
    if not valid:
        yield f"{answer!r} is not valid"


def walks(
    vocabulary: Vocabulary,
    compiler: Compiler,
    schema: Any,
    seed: int,
    times: int = WALKS,
    check: BruteForce | None = None,
) -> Report:
    """Several walks over one schema; every other one compares a mask if there is a ``check``."""
    report = Report()
    try:
        constraint = compiler.compile(JsonSchema(schema))
        needed = constraint.start().shortest_tokens(LONGEST)
    except ConstraintError:
        report.counts["refused"] += 1
        return report
    if needed > LONGEST:
        report.counts["too long"] += 1
        return report
    report.counts["schemas"] += 1
    for place in range(times):
        rng = random.Random(seed * 1000 + place)
        checked = check if place % 2 else None
        report.counts["walks"] += 1
        report.counts["masks compared"] += checked is not None
        for failure in walk(constraint, vocabulary, schema, rng, checked):
            report.failures.append(f"{json.dumps(schema)[:2000]}: {failure}")
    return report


@dataclass(frozen=True, slots=True)
class _Task:
    tokenizer: str
    schema: Any
    seed: int
    masks: bool
    seconds: int


@lru_cache(maxsize=3)
def instruments(name: str) -> tuple[text.Vocabulary, Compiler, BruteForce]:
    """For the tokenizer with this name."""
    vocabulary = tokenizer(name).vocabulary
    return vocabulary, Compiler(vocabulary), BruteForce(vocabulary)


class _TooSlow(Exception):
    pass


def _alarm(*_: Any) -> None:
    raise _TooSlow


def _run(task: _Task) -> Report:
    vocabulary, compiler, check = instruments(task.tokenizer)
    signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(task.seconds)
    try:
        brute = check if task.masks else None
        return walks(vocabulary, compiler, task.schema, task.seed, check=brute)
    except _TooSlow:
        return Report(Counter(slow=1), [f"slow: {json.dumps(task.schema)[:2000]}"])
    except Exception as error:  # a crash is a failure
        return Report(Counter(crashes=1), [f"{json.dumps(task.schema)[:2000]}: {error!r}"])
    finally:
        signal.alarm(0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.walks")
    parser.add_argument("--count", type=int, default=10_000, help="number of walks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokenizers", nargs="+", choices=datasets.tokenizers())
    parser.add_argument("--masks", action="store_true", help="compare masks with brute force")
    parser.add_argument("--seconds", type=int, default=60, help="time limit per schema")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    names = options.tokenizers or list(datasets.tokenizers())
    cases = datasets.maskbench(count=options.count // WALKS * 3 // 2, seed=options.seed)
    tasks = (
        _Task(
            tokenizer=names[place % len(names)],
            schema=cases[place % len(cases)]["schema"],
            seed=options.seed + place,
            masks=options.masks,
            seconds=options.seconds,
        )
        for place in count()
    )
    for name in names:
        instruments(name)  # before the workers are forked
    total, start = Report(), time.monotonic()
    with multiprocessing.get_context("fork").Pool(options.workers) as pool:
        while total.counts["walks"] < options.count:
            batch = list(islice(tasks, 60))
            for report in pool.imap_unordered(_run, batch):
                total.add(report)
                for failure in report.failures:
                    print(failure, flush=True)
    print(f"{dict(total.counts)}, {len(total.failures)} failures", end="")
    print(f", {time.monotonic() - start:.0f} s")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
