"""Figures from rounds: percentiles, rates, counts, and ratios between arms."""

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
    """None if there are no values."""
    array = np.fromiter(values, float)
    if not array.size:
        return None
    p50, p90, p95, p99 = (float(value) for value in np.percentile(array, (50, 90, 95, 99)))
    return Distribution(p50, p90, p95, p99, float(array.mean()))


@dataclass(frozen=True, slots=True)
class Summary:
    """One arm in one cell. Seconds; rates are medians over rounds, means are over answers."""

    workload: str
    load: str
    arm: str
    rounds: int
    outcomes: dict[Outcome, int]
    right: int | None
    """Right parts of all answers (calls, fields), of ``parts``; None: no answer is known."""
    parts: int
    latency: Distribution | None
    """From when a request was due until its last byte, of answers right or wrong."""
    first_token: Distribution | None
    gap: Distribution | None
    """Between chunks with text in them."""
    per_token: Distribution | None
    """From the first token to the end, divided by the tokens after the first."""
    answers_per_second: float
    valid_per_second: float
    tokens_per_second: float
    tokens_per_answer: float | None
    tokens_counted: bool
    """The server reported the number of tokens; otherwise chunks were counted."""
    passes_per_answer: float | None
    """Forward passes that the answer's sequence took part in."""
    leapt_per_answer: float | None
    drafted_per_answer: float | None
    server_passes_per_answer: float | None
    """Forward passes of the server, which answers share, divided by the answers."""


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
    """None where any value is unknown."""
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
    """The speed of an arm relative to the baseline; below 1 it is worse."""

    value: float
    """Of the medians over everything."""
    low: float
    high: float
    """The least and the most of single repetitions."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm against the baseline in one cell.

    Times divide the baseline's by the arm's, rates the arm's by the baseline's.
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
    """Every other arm against ``baseline``, where both were measured."""
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
    """``pairs`` are arm and baseline: all rounds first, then single repetitions."""
    values = [
        ours / theirs if (ours := speed(arm)) and (theirs := speed(baseline)) else None
        for arm, baseline in pairs
    ]
    single = [value for value in values[1:] if value is not None]
    if values[0] is None or not single:
        return None
    return Ratio(values[0], min(single), max(single))
