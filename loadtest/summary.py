"""Statistics of rounds: percentiles, rates, counts, and ratios between arms."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from loadtest.answers import Answer, Outcome
from loadtest.measure import Cell, MeasuredRound, Results
from loadtest.requests import Verdict
from loadtest.server_metrics import forward_passes

OUTCOMES: tuple[Outcome, ...] = (*get_args(Verdict), "refused", "failed")


@dataclass(frozen=True, slots=True)
class Distribution:
    """Percentiles, with linear interpolation between the nearest values."""

    p50: float
    p90: float
    p95: float
    p99: float
    mean: float


def distribution(values: Iterable[float]) -> Distribution | None:
    """The distribution of ``values``; None if there are none."""
    array = np.fromiter(values, float)
    if not array.size:
        return None
    p50, p90, p95, p99 = (float(value) for value in np.percentile(array, (50, 90, 95, 99)))
    return Distribution(p50, p90, p95, p99, float(array.mean()))


@dataclass(frozen=True, slots=True)
class Summary:
    """One arm in one cell. Times are seconds, rates medians over rounds, means over answers."""

    workload: str
    load: str
    arm: str
    rounds: int
    outcomes: dict[Outcome, int]
    right: int | None
    """Number of correct parts (calls, fields), of ``parts``; None: no expected answers."""
    parts: int
    latency: Distribution | None
    """Time from a request's due time to its last byte, for all complete answers."""
    first_token: Distribution | None
    gap: Distribution | None
    """Times between chunks with text or calls."""
    per_token: Distribution | None
    """Time from the first token to the end, divided by the number of tokens after the first."""
    answers_per_second: float
    valid_per_second: float
    tokens_per_second: float
    tokens_per_answer: float | None
    tokens_counted: bool
    """Whether the server reported the number of tokens; if not, chunks are counted."""
    passes_per_answer: float | None
    """Forward passes that included the answer's sequence."""
    leapt_per_answer: float | None
    drafted_per_answer: float | None
    server_passes_per_answer: float | None
    """All forward passes of the server, divided by the number of answers."""


def summarize(cell: Cell, arm: str, rounds: Sequence[MeasuredRound]) -> Summary:
    everything = [answer for each in rounds for answer in each.answers]
    outcomes = Counter(answer.outcome for answer in everything)
    answers = [answer for answer in everything if answer.complete]
    right = [answer.right for answer in everything if answer.right is not None]
    passes = [forward_passes(each.counts) for each in rounds]
    known = [value for value in passes if value is not None]
    return Summary(
        workload=cell.workload,
        load=str(cell.load),
        arm=arm,
        rounds=len(rounds),
        outcomes={name: outcomes[name] for name in OUTCOMES},
        right=sum(right) if right else None,
        parts=sum(answer.parts for answer in everything),
        latency=distribution(answer.seconds for answer in answers),
        first_token=distribution(a.first for a in answers if a.first is not None),
        gap=distribution(gap for answer in answers for gap in answer.gaps),
        per_token=distribution(value for a in answers if (value := _per_token(a)) is not None),
        answers_per_second=_rate(rounds, lambda answer: answer.complete),
        valid_per_second=_rate(rounds, lambda answer: answer.outcome == "valid"),
        tokens_per_second=_rate(rounds, lambda answer: answer.tokens),
        tokens_per_answer=_mean(answer.tokens for answer in answers),
        tokens_counted=all(answer.counted for answer in answers),
        passes_per_answer=_mean(answer.forward_passes for answer in answers),
        leapt_per_answer=_mean(answer.leapt for answer in answers),
        drafted_per_answer=_mean(answer.drafted for answer in answers),
        server_passes_per_answer=sum(known) / len(answers)
        if answers and len(known) == len(rounds)
        else None,
    )


def summaries(results: Results) -> list[Summary]:
    return [summarize(cell, arm, rounds) for (cell, arm), rounds in results.rounds.items()]


def _rate(rounds: Sequence[MeasuredRound], count: Callable[[Answer], float]) -> float:
    return statistics.median(sum(map(count, each.answers)) / each.seconds for each in rounds)


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean; None if any value is unknown."""
    known = list(values)
    if not known or None in known:
        return None
    return statistics.mean(value for value in known if value is not None)


def _per_token(answer: Answer) -> float | None:
    if answer.first is None or answer.tokens < 2:
        return None
    return (answer.seconds - answer.first) / (answer.tokens - 1)


@dataclass(frozen=True, slots=True)
class Ratio:
    """The speed of an arm relative to the baseline; below 1 the arm is slower."""

    value: float
    """Ratio of the medians over all rounds."""
    low: float
    high: float
    """Minimum and maximum ratio of single repetitions."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm against the baseline in one cell.

    Ratios of times are baseline / arm, ratios of rates are arm / baseline.
    """

    workload: str
    load: str
    arm: str
    baseline: str
    latency: Ratio | None
    first_token: Ratio | None
    valid_per_second: Ratio | None
    tokens_per_second: Ratio | None


def comparisons(results: Results, baseline: str) -> list[Comparison]:
    """Every other arm against ``baseline``, for cells in which both were measured."""
    found = []
    for (cell, arm), ours in results.rounds.items():
        theirs = results.rounds.get((cell, baseline))
        if arm == baseline or theirs is None:
            continue
        pairs = [(summarize(cell, arm, ours), summarize(cell, baseline, theirs))] + [
            (summarize(cell, arm, [mine]), summarize(cell, baseline, [other]))
            for mine in ours
            for other in theirs
            if mine.repeat == other.repeat
        ]
        found.append(
            Comparison(
                cell.workload,
                str(cell.load),
                arm,
                baseline,
                latency=_ratio(pairs, lambda s: _inverse(s.latency)),
                first_token=_ratio(pairs, lambda s: _inverse(s.first_token)),
                valid_per_second=_ratio(pairs, lambda s: s.valid_per_second),
                tokens_per_second=_ratio(pairs, lambda s: s.tokens_per_second),
            )
        )
    return found


def _inverse(times: Distribution | None) -> float | None:
    return 1 / times.p50 if times is not None and times.p50 else None


def _ratio(
    pairs: Sequence[tuple[Summary, Summary]], speed: Callable[[Summary], float | None]
) -> Ratio | None:
    """``pairs`` of arm and baseline: first over all rounds, then for single repetitions."""
    values = [
        ours / theirs if (ours := speed(arm)) and (theirs := speed(baseline)) else None
        for arm, baseline in pairs
    ]
    single = [value for value in values[1:] if value is not None]
    if values[0] is None or not single:
        return None
    return Ratio(values[0], min(single), max(single))
