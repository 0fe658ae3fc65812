"""Cost of a context: its prefill, and the decode steps after it."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from app.core.request import EngineRequest, GenerationOptions
from loadtest.tables import table
from tools.bench.costs.asking import COMPLETIONS, Client
from tools.bench.costs.stepping import Stepper

COLUMNS = (
    "context", "prefill ms", "first token ms, new", "first token ms, seen before",
    "decode ms, 1 answer", "decode ms, 8 answers",
)  # fmt: skip
TOGETHER = 8


@dataclass(frozen=True, slots=True)
class StepCost:
    """Medians, in seconds."""

    prefill: float
    alone: float
    """A decode step of one answer."""
    together: float
    """A decode step of eight answers."""


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Medians, in seconds."""

    new: float
    seen: float


def lengths_within(lengths: Sequence[int], positions: int, steps: int) -> list[int]:
    """Lengths that leave room for ``steps`` decode steps in the model's positions."""
    return [length for length in lengths if length + steps + 2 <= positions]


def prompts(length: int, number: int, vocabulary: int, seed: int) -> list[list[int]]:
    """Prompts of random tokens, so that no two share a prefix."""
    rng = random.Random(seed * 1_000_003 + length)
    return [[rng.randrange(vocabulary) for _ in range(length)] for _ in range(number)]


def step_costs(stepper: Stepper, lengths: Sequence[int], steps: int) -> dict[int, StepCost]:
    """Costs by length of the prompt, over ``steps`` decode steps.

    Each prompt is computed by itself; decoding finds it in the prefix cache.
    """
    numbers = count()
    found = {}
    for length in lengths:
        texts = prompts(length, TOGETHER, stepper.words.vocabulary.size, 0)
        prefills = [_prefill(stepper, str(next(numbers)), prompt) for prompt in texts]
        alone, together = (
            _decode(stepper, [(str(next(numbers)), text) for text in some], steps)
            for some in (texts[:1], texts)
        )
        found[length] = StepCost(statistics.median(prefills), alone, together)
    return found


def _prefill(stepper: Stepper, name: str, prompt: Sequence[int]) -> float:
    stepper.add(EngineRequest(name, prompt, 1, options=GenerationOptions(ignore_eos=True)))
    seconds = 0.0
    while stepper.live:
        seconds += stepper.step().seconds
    return seconds


def _decode(stepper: Stepper, texts: Sequence[tuple[str, Sequence[int]]], steps: int) -> float:
    """Median seconds of ``steps`` steps in which all ``texts`` decode."""
    for name, prompt in texts:
        stepper.add(
            EngineRequest(name, prompt, steps + 2, options=GenerationOptions(ignore_eos=True))
        )
    found: list[float] = []
    while stepper.live == len(texts) and len(found) < steps:
        step = stepper.step()
        if step.tokens == step.gained == len(texts):
            found.append(step.seconds)
    stepper.abort()
    return statistics.median(found)


def first_tokens(
    client: Client, lengths: Sequence[int], number: int, vocabulary: int
) -> dict[int, FirstToken]:
    """Times of ``number`` prompts of each length, each sent twice: the second hits the cache."""
    found = {}
    for length in lengths:
        requests = [
            # Letters, since half a character is no text yet.
            {"prompt": prompt, "max_tokens": 2, "guided_regex": "[a-z]{2,20}"}
            for prompt in prompts(length, number, vocabulary, 1)
            for _ in range(2)
        ]
        seconds = client.first_tokens(COMPLETIONS, requests)
        found[length] = FirstToken(
            statistics.median(seconds[::2]), statistics.median(seconds[1::2])
        )
    return found


def context_table(steps: Mapping[int, StepCost], firsts: Mapping[int, FirstToken]) -> str:
    rows = [
        [
            str(length),
            *(
                f"{1e3 * seconds:.1f}"
                for seconds in (
                    cost.prefill,
                    firsts[length].new,
                    firsts[length].seen,
                    cost.alone,
                    cost.together,
                )
            ),
        ]
        for length, cost in steps.items()
    ]
    return table(COLUMNS, rows)
