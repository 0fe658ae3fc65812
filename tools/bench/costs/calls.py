"""The longest single calls on constraints that were made to hurt: how long one makes others wait.

Random answers are followed token by token, every second one near the end of its budget. Masks are
worked on in turns, as the engine does. Times are processor time of the thread.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from app.constraint import Compiler
from app.constraint.compiler import read_document
from app.constraint.constraint import CompiledConstraint
from app.core.constraint import ConstraintState, Mask
from app.core.errors import DrawAgain, LeapjsonError, WorkPending
from app.core.specs import JsonSchema
from app.engine.mask_work import WORK_AT_ONCE, work_in_turn
from app.text import Vocabulary
from loadtest.tables import table
from tools import datasets
from tools.bench.hostile_schemas import KINDS, Attack, hostile

COLUMNS = ("schema", "masks", "turns", "longest mask's turns", "longest call ms", "which")

_ROOM, _TIGHT = 4_096, 12
"""Tokens that answers may have beyond the shortest one."""

T = TypeVar("T")


@dataclass
class Calls:
    """What was measured on one schema."""

    longest: float = 0.0
    which: str = ""
    masks: int = 0
    turns: int = 0
    most_turns: int = 0
    ended: set[str] = field(default_factory=set)
    """What calls raised, an answer ending there."""

    def timed(self, name: str, call: Callable[[], T]) -> T:
        before = time.thread_time()
        try:
            return call()
        finally:
            spent = time.thread_time() - before
            if spent > self.longest:
                self.longest, self.which = spent, name

    def mask(self, state: ConstraintState, budget: int) -> Mask:
        """The mask, in as many turns as it takes."""
        self.masks += 1
        return self.in_turns("mask", lambda work: state.mask(budget=budget, work=work))

    def in_turns(self, name: str, call: Callable[[int], T]) -> T:
        """What ``call`` comes to, worked on as the engine does."""
        turns, in_vain, work = 0, 0, WORK_AT_ONCE
        while True:
            turns += 1
            try:
                return self.timed(name, partial(call, work))
            except WorkPending as pending:
                in_vain += not pending.learned
                work = work_in_turn(in_vain)
            finally:
                self.turns += 1
                self.most_turns = max(self.most_turns, turns)

    def row(self, name: str) -> list[str]:
        longest = f"{1e3 * self.longest:.1f}"
        which = ", then ".join([self.which, *sorted(self.ended)])
        return [name, f"{self.masks}", f"{self.turns}", f"{self.most_turns}", longest, which]


def calls_table(folder: Path, tokens: int, answers: int) -> str:
    """For each kind of hostile schema that compiles: so many answers of so many tokens."""
    vocabulary = _vocabulary(folder)
    compiler = Compiler(vocabulary)
    rows = []
    for attack in hostile(KINDS):
        try:
            constraint = _constraint(compiler, attack)
        except LeapjsonError:
            continue
        calls = Calls()
        gc.collect()
        gc.disable()  # as the server, which collects between steps
        try:
            for number in range(answers):
                spare = _TIGHT if number % 2 else _ROOM
                _answer(calls, constraint, vocabulary, random.Random(number), spare, tokens)
        finally:
            gc.enable()
        rows.append((calls.longest, calls.row(attack.name)))
    rows.sort(key=lambda row: row[0], reverse=True)
    return table(COLUMNS, [row for _, row in rows])


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
        budget = calls.timed("shortest_tokens", state.shortest_tokens) + spare
        for number in range(tokens):
            if number == 0:
                calls.in_turns("opening", lambda work: state.prepare(work=work))
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
