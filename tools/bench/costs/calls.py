"""Longest single calls on hostile and real constraints: the time that other requests wait.

Random answers are followed token by token, every second one near the end of its budget. Masks are
computed in turns, as in the engine. Times are processor time of the thread.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from app.constraint import Compiler
from app.constraint.compiler import read_document
from app.constraint.constraint import AutomatonState, CompiledConstraint
from app.core.constraint import ConstraintState, Mask
from app.core.errors import DrawAgain, LeapjsonError, WorkPending
from app.core.specs import JsonSchema
from app.engine.mask_work import WORK_AT_ONCE, WORK_IN_TURN
from app.text import Vocabulary
from loadtest.tables import table
from tools import datasets
from tools.bench.hostile_schemas import KINDS, Attack, hostile

_LONGEST = 12
"""Calls in the table of all schemas."""

COLUMNS = ("schema", "masks", "turns", "longest mask's turns", "longest call ms", "which")

_ROOM, _TIGHT = 4_096, 12
"""Tokens of an answer's budget beyond its shortest completion."""

_GIVE_UP_EVERY = 8
"""Tokens between two masks that are given up at once in favour of a shortest completion."""

_CONTEXT = 32_768
"""Maximum tokens of an answer, as in a server."""

_SLOW = 0.05
"""Maximum seconds that a call should take."""

_COLLECT_EVERY = 20
"""Schemas between two garbage collections."""

T = TypeVar("T")


@dataclass
class Calls:
    """Measurements of one schema."""

    by_name: dict[str, float] = field(default_factory=dict)
    """Seconds of the longest call of each kind."""
    masks: int = 0
    turns: int = 0
    most_turns: int = 0
    ended: set[str] = field(default_factory=set)
    """Names of the errors that ended an answer."""

    def timed(self, name: str, call: Callable[[], T]) -> T:
        before = time.thread_time()
        try:
            return call()
        finally:
            spent = time.thread_time() - before
            self.by_name[name] = max(spent, self.by_name.get(name, 0.0))

    @property
    def longest(self) -> float:
        return max(self.by_name.values(), default=0.0)

    def mask(self, state: ConstraintState, budget: int) -> Mask:
        """The mask, computed in as many turns as it takes."""
        self.masks += 1
        return self.in_turns("mask", lambda work: state.mask(budget=budget, work=work))

    def in_turns(self, name: str, call: Callable[[int], T]) -> T:
        """Result of ``call``, computed in turns as in the engine."""
        turns, work = 0, WORK_AT_ONCE
        while True:
            turns += 1
            try:
                return self.timed(name, partial(call, work))
            except WorkPending:
                work = WORK_IN_TURN
            finally:
                self.turns += 1
                self.most_turns = max(self.most_turns, turns)

    def row(self, name: str) -> list[str]:
        longest = f"{1e3 * self.longest:.1f}"
        slowest = max(self.by_name, key=self.by_name.__getitem__)
        which = ", then ".join([slowest, *sorted(self.ended)])
        return [name, f"{self.masks}", f"{self.turns}", f"{self.most_turns}", longest, which]


def calls_table(folder: Path, tokens: int, answers: int) -> str:
    """Calls of each hostile schema that compiles, over ``answers`` answers of ``tokens`` tokens."""
    measured = _measured(folder, hostile(KINDS), tokens, answers)
    rows = sorted(measured, key=lambda pair: pair[1].longest, reverse=True)
    return table(COLUMNS, [calls.row(name) for name, calls in rows])


def longest_table(folder: Path, tokens: int, answers: int, count: int | None) -> str:
    """The longest calls of each kind and schema: hostile schemas, the probes of keywords, MaskBench
    and the official suite; ``count`` of each, or all. An interrupt ends it with what it has."""
    attacks = hostile(KINDS)[:count]
    cases = [replace(each, name=f"hostile: {each.name}") for each in attacks]
    cases.append(Attack("800 required names", _as_format(_required(800))))
    cases.append(Attack("20 flags with if/then", _as_format(_conditions(20))))
    probes = enumerate(datasets.keyword_probes()[:count])
    cases += [Attack(f"probe {n}", _as_format(probe["schema"])) for n, probe in probes]
    real = datasets.maskbench(count=count)
    cases += [Attack(f"MaskBench {case['id']}", _as_format(case["schema"])) for case in real]
    suite = [
        Attack(f"suite {draft} {file}: {group['description']}", _as_format(group["schema"]))
        for draft, files in datasets.official_suite().items()
        for file, groups in files.items()
        for group in groups
    ]
    cases += suite[:count]
    found: list[tuple[float, str, str]] = []
    done = 0
    with suppress(KeyboardInterrupt):
        for name, calls in _measured(folder, cases, tokens, answers):
            found += [(seconds, call, name) for call, seconds in calls.by_name.items()]
            done += 1
    found.sort(reverse=True)
    shown = table(
        ("ms", "call", "schema"),
        [(f"{1e3 * seconds:.1f}", call, name) for seconds, call, name in found[:_LONGEST]],
    )
    slow = sum(seconds > _SLOW for seconds, _, _ in found)
    return f"{shown}\n\n{done} schemas, {slow} calls above {1e3 * _SLOW:.0f} ms"


def _required(number: int) -> Any:
    names = [f"the name of member {n}" for n in range(number)]
    return {
        "type": "object",
        "properties": {name: {"type": ["integer", "string"][len(name) % 2]} for name in names},
        "required": names,
        "additionalProperties": False,
    }


def _conditions(number: int) -> Any:
    """Flags, each of which requires a reason; all reasons come after all flags."""
    flags, reasons = ([f"{word}{n}" for n in range(number)] for word in ("has", "why"))
    return {
        "type": "object",
        "properties": {
            **{flag: {"type": "boolean"} for flag in flags},
            **{reason: {"type": "string"} for reason in reasons},
        },
        "allOf": [
            {"if": {"properties": {flag: {"const": True}}}, "then": {"required": [reason]}}
            for flag, reason in zip(flags, reasons, strict=True)
        ],
        "required": flags,
        "additionalProperties": False,
    }


def _as_format(schema: Any) -> dict[str, Any]:
    return {"json_schema": {"schema": schema}}


def _measured(
    folder: Path, cases: Iterable[Attack], tokens: int, answers: int
) -> Iterator[tuple[str, Calls]]:
    """Calls of random answers under each schema that compiles."""
    vocabulary = _vocabulary(folder)
    compiler = Compiler(vocabulary)
    _answer(Calls(), compiler.compile(JsonSchema(True)), vocabulary, random.Random(0), 40, 40)
    for place, case in enumerate(cases):
        try:
            constraint = _constraint(compiler, case)
        except LeapjsonError:
            continue
        calls = Calls()
        if place % _COLLECT_EVERY == 0:
            gc.collect()
        gc.disable()  # the server too collects only between steps
        try:
            for number in range(answers):
                spare = _TIGHT if number % 2 else _ROOM
                _answer(calls, constraint, vocabulary, random.Random(number), spare, tokens)
        finally:
            gc.enable()
        if calls.by_name:
            yield case.name, calls


def _vocabulary(folder: Path) -> Vocabulary:
    parsed = json.loads(datasets.tokenizer_json(folder))
    return Vocabulary.from_json(parsed, [parsed["added_tokens"][0]["id"]])


def _constraint(compiler: Compiler, attack: Attack) -> CompiledConstraint:
    schema: Any = attack.response_format["json_schema"]["schema"]
    constraint = compiler.compile(JsonSchema(schema))
    if not constraint.holes:
        return constraint
    sources = {hole.source for hole in constraint.holes}
    return constraint.bind(
        {source: read_document([attack.prompt], source.words) for source in sources}
    )


def _answer(
    calls: Calls,
    constraint: CompiledConstraint,
    vocabulary: Vocabulary,
    dice: random.Random,
    spare: int,
    tokens: int,
) -> None:
    state = constraint.start()
    try:
        needed = calls.timed("shortest_tokens", partial(state.shortest_tokens, _CONTEXT))
        if needed > _CONTEXT:
            return
        budget = needed + spare
        for number in range(tokens):
            if number == 0:
                calls.in_turns("opening", lambda work: state.prepare(work=work))
            if number % _GIVE_UP_EVERY == 0:
                other = state.copy()
                other.give_up(budget)

                def narrowed(work: int, other: AutomatonState = other, budget: int = budget) -> Any:
                    return other.mask(budget, work=work)

                calls.in_turns("mask that is given up", narrowed)
            forced = calls.timed("forced", state.forced)
            if calls.timed("is_final", lambda: state.is_final):
                return
            calls.timed("can_extend", partial(state.can_extend, forced[-1:]))
            mask = calls.mask(state, budget)
            allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
            token = int(dice.choice(allowed[~np.isin(allowed, list(vocabulary.eos_ids))]))
            try:
                calls.timed("accept", partial(state.accept, token, budget=budget - 1))
            except DrawAgain:
                continue
            budget -= 1
    except (LeapjsonError, IndexError) as error:
        calls.ended.add(type(error).__name__)
