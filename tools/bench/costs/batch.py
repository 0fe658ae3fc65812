"""Cost of a step by the number of answers in it.

A fixed number of character sheets is kept in flight: a new one replaces each that ends. Sheets
begin one after another, since answers that begin together leap together.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from app.constraint import Compiler
from app.core.constraint import Constraint
from app.core.events import TokenChunk
from app.core.request import EngineRequest, GenerationOptions
from app.core.specs import JsonSchema
from loadtest.tables import table
from loadtest.tasks import CHARACTER, CHARACTER_PROMPT, CHARACTERS
from tools.bench.costs.stepping import Step, Stepper

COLUMNS = (
    "batch", "answers", "step ms", "host ms", "tokens computed a step", "tokens a second",
    "answers a second",
)  # fmt: skip
LONGEST = 300
"""Maximum tokens of a sheet."""
RAMP = 32
"""Steps over which the first answers begin, unless an answer takes fewer."""


@dataclass(frozen=True, slots=True)
class Mode:
    name: str
    constrained: bool = True
    leap: bool = False
    draft: bool = False


MODES = (
    Mode("leap and drafts", leap=True, draft=True),
    Mode("leap", leap=True),
    Mode("neither"),
    Mode("free text", constrained=False),
)


@dataclass(frozen=True, slots=True)
class Extent:
    """Amount of measurement for each mode and batch size."""

    batches: Sequence[int]
    seconds: float
    """Minimum seconds of a window."""
    steps: int
    """Minimum steps of a window."""
    answers: int
    """Answers before the measurement: they fill the mask caches and give the usual length."""


@dataclass(frozen=True, slots=True)
class Typical:
    """Averages of the answers of a mode."""

    tokens: float
    passes: float


class Sheets:
    """Requests for character sheets, without end."""

    def __init__(self, stepper: Stepper) -> None:
        tokenizer = stepper.words.tokenizer
        texts = (CHARACTER_PROMPT.format(name) for name in CHARACTERS)
        self._prompts = [tokenizer.encode_prompt(text) for text in texts]
        compiler = Compiler(stepper.words.vocabulary)
        self._sheet: Constraint = compiler.compile(JsonSchema(CHARACTER, close_objects=True))
        self._numbers = count()

    def of(self, mode: Mode, tokens: int) -> Iterator[EngineRequest]:
        """Requests with a limit of ``tokens``; free text has exactly that many."""
        for number in self._numbers:
            yield EngineRequest(
                request_id=str(number),
                prompt=self._prompts[number % len(self._prompts)],
                max_tokens=tokens,
                seed=number,
                constraint=self._sheet if mode.constrained else None,
                options=GenerationOptions(
                    ignore_eos=not mode.constrained, leap=mode.leap, draft=mode.draft
                ),
            )


def batch_table(stepper: Stepper, extent: Extent) -> str:
    sheets = Sheets(stepper)
    usual = {mode: typical(stepper, sheets.of(mode, LONGEST), extent.answers) for mode in MODES[:3]}
    length = round(usual[MODES[0]].tokens)
    usual[MODES[3]] = Typical(length, length)
    rows = []
    for batch in extent.batches:
        for mode in MODES:
            tokens = LONGEST if mode.constrained else length
            ramp = min(RAMP, round(usual[mode].passes))
            steps = window(stepper, sheets.of(mode, tokens), batch, ramp, extent)
            rows.append(row(batch, mode, steps, usual[mode]))
    notes = ", ".join(
        f"{mode.name} {each.tokens:.0f} ({each.passes:.1f})" for mode, each in usual.items()
    )
    return f"{table(COLUMNS, rows)}\n\nTokens (forward passes) of an answer: {notes}."


def typical(stepper: Stepper, requests: Iterator[EngineRequest], answers: int) -> Typical:
    """Averages over ``answers`` answers that run together from start to end."""
    for _ in range(answers):
        stepper.add(next(requests))
    ended: list[TokenChunk] = []
    while stepper.live:
        ended += stepper.step().ended
    return Typical(
        statistics.mean(chunk.usage.completion_tokens for chunk in ended),
        statistics.mean(chunk.usage.forward_passes for chunk in ended),
    )


def window(
    stepper: Stepper, requests: Iterator[EngineRequest], batch: int, ramp: int, extent: Extent
) -> list[Step]:
    """Steps with ``batch`` answers in flight, each at any place of its text."""
    steps: list[Step] = []
    for number in count(1):
        wanted = batch if number >= ramp else -(-batch * number // ramp)
        while stepper.live < wanted:
            stepper.add(next(requests))
        step = stepper.step()
        if number > ramp:
            steps.append(step)
        if len(steps) >= extent.steps and sum(s.seconds for s in steps) >= extent.seconds:
            break
    stepper.abort()
    return steps


def row(batch: int, mode: Mode, steps: Sequence[Step], usual: Typical) -> list[str]:
    """Medians of times, means of tokens; answers a second follow from the mode's usual tokens."""
    rate = sum(step.gained for step in steps) / sum(step.seconds for step in steps)
    return [
        str(batch),
        mode.name,
        f"{1e3 * statistics.median(step.seconds for step in steps):.1f}",
        f"{1e3 * statistics.median(step.host for step in steps):.2f}",
        f"{statistics.mean(step.tokens for step in steps):.1f}",
        f"{rate:.0f}",
        f"{rate / usual.tokens:.2f}",
    ]
