"""Random inputs against oracles, for hours: ``make fuzz`` (``HOURS=1``, ``WORKERS=2``).

Kinds of search take turns, each turn with new seeds: random schemas against the ``jsonschema``
library, disputed ones, objects that count members, relaxed ones, walks that compare masks with
brute force, requests against ``/openapi.json``, and the Hypothesis tests with random seeds. Each
failure is minimized and printed as a test to paste. Exit status: 0 if nothing was found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pprint
import random
import re
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any

from app.constraint import Compiler
from app.core.errors import ConstraintError
from tests.conformance import agreement, relaxing
from tests.conformance.agreement import without_a_part
from tests.conformance.random_schemas import (
    disputed_schema,
    object_schema,
    object_value,
    random_schema,
    random_value,
)
from tests.conformance.tokenizers import tokenizer
from tests.conformance.walks import BruteForce, walks

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = 100
"""Random schemas per turn."""
SECONDS = 20
"""Time limit for one schema, and for minimizing it; a schema that exceeds it counts as slow."""
REQUESTS = 300
_FALSIFYING = re.compile(r"Falsifying example: (\w+)\(\n(.*?)\n\s*\)", re.DOTALL)
_FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)

Search = Callable[[random.Random, Counter[str]], Iterator[str]]
"""One turn: yields tests to paste, and counts the inputs tried."""


class TooSlow(BaseException):
    """Not an ``Exception``: the searches catch those as crashes of the tested code."""


@contextmanager
def limited() -> Iterator[None]:
    """Raises ``TooSlow`` in the block after ``SECONDS``."""

    def alarm(*_: Any) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, alarm)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def as_test(comment: str, statement: str, **values: Any) -> str:
    """The source of a test function that assigns ``values`` and then runs ``statement``."""
    lines = [f"# {comment}"]
    for name, value in values.items():
        lines += f"{name}: Any = {pprint.pformat(value, width=80, sort_dicts=False)}".split("\n")
    body = "\n".join(f"    {line}" for line in [*lines, *statement.split("\n")])
    return f"def test_a_failure_found_by_fuzzing() -> None:\n{body}\n"


def smallest(value: Any, fails: Callable[[Any], object]) -> Any:
    """``value`` without every part that can be removed while it still ``fails``."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for smaller in without_a_part(value):
            if fails(smaller):
                value = smaller
                break
        else:
            break
    return value


def _schemas(
    rng: random.Random,
    counts: Counter[str],
    draw: Callable[[random.Random], Any] = random_schema,
    any_value: Callable[[random.Random], Any] = random_value,
) -> Iterator[str]:
    disputed = draw is disputed_schema
    for _ in range(SCHEMAS):
        schema = draw(rng)
        found = None
        try:
            with limited():
                found = agreement.check(
                    schema, rng, Counter(), disputed=disputed, any_value=any_value
                )
            counts["schemas"] += 1
            if found is None:
                continue
            with limited():
                found = agreement.smallest(found, disputed=disputed)
        except TooSlow:
            counts["slow"] += 1
            if found is None:
                continue
        yield as_test(
            f"{found.kind}, to jsonschema. {found.note}",
            "from tests.conformance.agreement import disagrees\n"
            f'assert disagrees(schema, value, disputed={disputed}) == ""',
            schema=found.schema,
            value=found.value,
        )


def _relaxed(rng: random.Random, counts: Counter[str]) -> Iterator[str]:
    def fails(schema: Any, seed: int) -> bool:
        try:
            with limited():
                return bool(relaxing.left_out(schema, random.Random(seed))[0])
        except (ConstraintError, TooSlow):
            return False
        except Exception:  # jsonschema fails: no longer a valid schema
            return False

    for _ in range(SCHEMAS):
        schema, seed = relaxing.spoiled(random_schema(rng), rng), rng.randrange(1 << 32)
        counts["schemas"] += 1
        if fails(schema, seed):
            small = smallest(schema, partial(fails, seed=seed))
            yield as_test(
                "Valid instances that the relaxed language lacks.",
                "from tests.conformance.relaxing import left_out\n"
                f"assert left_out(schema, random.Random({seed}))[0] == []",
                schema=small,
            )


@lru_cache(maxsize=1)
def _gpt2() -> tuple[Any, Compiler, BruteForce]:
    vocabulary = tokenizer("gpt2").vocabulary
    return vocabulary, Compiler(vocabulary), BruteForce(vocabulary)


def _walks(rng: random.Random, counts: Counter[str]) -> Iterator[str]:
    vocabulary, compiler, check = _gpt2()

    def failures(schema: Any, seed: int) -> list[str]:
        try:
            with limited():
                return walks(vocabulary, compiler, schema, seed, times=4, check=check).failures
        except TooSlow:
            counts["slow"] += 1
            return []
        except Exception as error:  # a crash is a failure
            return [repr(error)]

    for _ in range(SCHEMAS // 5):
        schema, seed = random_schema(rng), rng.randrange(1 << 32)
        counts["schemas"] += 1
        if found := failures(schema, seed):
            small = smallest(schema, partial(failures, seed=seed))
            yield as_test(
                found[0][-200:],
                'vocabulary = tokenizer("gpt2").vocabulary\n'
                "compiler, check = Compiler(vocabulary), BruteForce(vocabulary)\n"
                f"report = walks(vocabulary, compiler, schema, {seed}, times=4, check=check)\n"
                "assert report.failures == []",
                schema=small,
            )


def _run(*arguments: str) -> str:
    """The output of a failed command; "" if the command succeeds."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr if done.returncode else ""


def _requests(rng: random.Random, counts: Counter[str]) -> Iterator[str]:
    seed = str(rng.randrange(1 << 32))
    counts["requests"] += REQUESTS
    command = ("tests.conformance.fuzz_api", "--examples", str(REQUESTS), "--seed", seed)
    if printed := _run(*command):
        yield f"# python -m {' '.join(command)}\n{printed}"


def _hypothesis(rng: random.Random, counts: Counter[str]) -> Iterator[str]:
    seed = rng.randrange(1 << 32)
    profile = ("--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}")
    counts["runs of the Hypothesis tests"] += 1
    printed = _run("pytest", "-m", "hypothesis", *profile)
    if not printed:
        return
    yield f"# pytest {' '.join(profile)} {' '.join(_FAILED.findall(printed))}"
    examples = _FALSIFYING.findall(printed)
    for test, values in examples:
        arguments = "\n".join(f"    {line.strip()}" for line in values.split("\n"))
        yield f"# above {test}:\n@example(\n{arguments}\n)"
    if not examples:
        yield printed


SEARCHES: dict[str, Search] = {
    "schemas": _schemas,
    "disputed": partial(_schemas, draw=disputed_schema),
    "objects": partial(_schemas, draw=object_schema, any_value=object_value),
    "relaxed": _relaxed,
    "walks": _walks,
    "requests": _requests,
    "hypothesis": _hypothesis,
}


def _turn(task: tuple[str, int]) -> tuple[str, Counter[str], list[str]]:
    kind, seed = task
    counts = Counter[str]()
    return kind, counts, list(SEARCHES[kind](random.Random(seed), counts))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.fuzz")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    parser.add_argument("--seed", type=int, help="seed of the first turn (default: random)")
    options = parser.parse_args(arguments)
    first = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    print(f"--seed {first}", flush=True)
    end = time.monotonic() + options.hours * 3600
    total: dict[str, Counter[str]] = {kind: Counter() for kind in options.kinds}
    kinds = options.kinds
    tasks = ((kinds[place % len(kinds)], first + place) for place in count())
    found = 0
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(_turn, next(tasks)) for _ in range(options.workers)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for kind, counts, tests in (each.result() for each in done):
                total[kind] += counts
                found += len(tests)
                for test in tests:
                    print(f"\n{test}", flush=True)
                if time.monotonic() < end:
                    running.add(pool.submit(_turn, next(tasks)))
    for kind, counts in total.items():
        print(f"{kind:<12}", ", ".join(f"{number:,} {name}" for name, number in counts.items()))
    print(f"{found} found" if found else "nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
