"""Runs one schema of MaskBench through an engine, or through our language by itself."""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

import jsonschema

from app.core.errors import (
    ConstraintError,
    DrawAgain,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from app.core.specs import JsonSchema
from tests.conformance.peers import Engine, EngineFailed, Matcher, Refused
from tests.conformance.tokenizers import RealTokenizer
from tests.constraint.walks import Walker
from tools.datasets import Case


@dataclass
class Trial:
    """The result of an engine on one schema. Times are in nanoseconds, instances are indices.

    ``outcome``: ``compiled``, ``refused``, ``crash`` or ``time-out``.
    """

    outcome: str
    reason: str = ""
    keyword: str = ""
    unsatisfiable: bool = False
    compile_cpu: int = 0
    compile_wall: int = 0
    first_masks: list[int] = field(default_factory=list)
    second_masks: list[int] = field(default_factory=list)
    accepts: list[int] = field(default_factory=list)
    valid_rejected: list[int] = field(default_factory=list)
    other_order: list[int] = field(default_factory=list)
    """Instances of ``valid_rejected`` that are accepted with their keys in another order."""
    invalid_accepted: list[int] = field(default_factory=list)
    wrong_samples: list[str] = field(default_factory=list)
    """Texts of our language that the ``jsonschema`` library finds invalid."""

    @property
    def passed(self) -> bool:
        """Compiled or unsatisfiable; every valid instance accepted, every invalid one rejected."""
        right = not self.valid_rejected and not self.invalid_accepted
        return right and (self.outcome == "compiled" or self.unsatisfiable)

    def as_json(self) -> dict[str, Any]:
        """As JSON, with the sum of each list of times instead of the list."""
        kept = asdict(self)
        for times in ("first_masks", "second_masks", "accepts"):
            kept[times] = sum(kept[times])
        return {"passed": self.passed, **kept}


def dumps(value: Any) -> str:
    """``value`` in the JSON form of answers."""
    return json.dumps(value, ensure_ascii=False)


def with_masks(engine: Engine, tokenizer: RealTokenizer, case: Case) -> Trial:
    """Compile, and follow every instance token by token, twice."""
    gc.collect()
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    try:
        start = engine.compile(case["schema"])
    except Refused as refusal:
        return _refused(case, refusal.reason, refusal.keyword, refusal.unsatisfiable)
    except Exception as error:  # the benchmark looks for crashes
        return Trial("crash", reason=repr(error))
    trial = Trial("compiled")
    trial.compile_cpu = time.process_time_ns() - cpu
    trial.compile_wall = time.perf_counter_ns() - wall
    texts = [tokenizer.encode(dumps(test["data"])) for test in case["tests"]]
    try:
        for place, (test, tokens) in enumerate(zip(case["tests"], texts, strict=True)):
            accepted = _follow(start(), tokens, tokenizer.end, trial.first_masks, trial.accepts)
            _judge(trial, place, accepted, test["valid"])
        for tokens in texts:
            _follow(start(), tokens, tokenizer.end, trial.second_masks, [])
    except EngineFailed as error:
        trial.outcome, trial.reason = "crash", str(error)
    except Exception as error:  # likewise
        trial.outcome, trial.reason = "crash", repr(error)
    return trial


def _follow(
    matcher: Matcher, tokens: list[int], end: int, masks: list[int], accepts: list[int]
) -> bool:
    """Whether ``tokens`` and then the end of sequence are allowed; appends the step times."""
    clock = time.perf_counter_ns
    for token in tokens:
        before = clock()
        mask = matcher.mask()
        masks.append(clock() - before)
        if not mask[token >> 5] >> (token & 31) & 1:
            return False
        before = clock()
        try:
            matcher.accept(token)
        except DrawAgain:
            return False
        accepts.append(clock() - before)
    before = clock()
    mask = matcher.mask()
    masks.append(clock() - before)
    return bool(mask[end >> 5] >> (end & 31) & 1)


def by_bytes(case: Case) -> Trial:
    """Try our language without a vocabulary: instances in any key order, and random texts."""
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    try:
        walker = Walker.of(JsonSchema(case["schema"]))
        if walker.is_empty:
            raise UnsatisfiableSchema
    except ConstraintError as error:
        keyword = error.keyword if isinstance(error, UnsupportedSchema) else error.code
        nothing = isinstance(error, UnsatisfiableSchema)
        return _refused(case, str(error), keyword, nothing)
    except Exception as error:  # the pass looks for crashes
        return Trial("crash", reason=repr(error))
    trial = Trial("compiled")
    trial.compile_cpu = time.process_time_ns() - cpu
    trial.compile_wall = time.perf_counter_ns() - wall
    try:
        for place, test in enumerate(case["tests"]):
            accepted = walker.accepts_value(test["data"])
            _judge(trial, place, accepted, test["valid"])
            if not accepted and walker.accepts_in_some_order(test["data"]):
                if test["valid"]:
                    trial.other_order.append(place)
                else:
                    trial.invalid_accepted.append(place)
        trial.wrong_samples = _wrong_samples(case["schema"], walker)
    except Exception as error:  # likewise
        trial.outcome, trial.reason = "crash", repr(error)
    return trial


def _judge(trial: Trial, place: int, accepted: bool, valid: bool) -> None:
    if valid and not accepted:
        trial.valid_rejected.append(place)
    if accepted and not valid:
        trial.invalid_accepted.append(place)


def _refused(case: Case, reason: str, keyword: str, unsatisfiable: bool) -> Trial:
    trial = Trial("refused", reason=reason, keyword=keyword, unsatisfiable=unsatisfiable)
    if unsatisfiable:
        trial.valid_rejected = [p for p, test in enumerate(case["tests"]) if test["valid"]]
    return trial


def validator_of(schema: Any) -> Any:
    """The ``jsonschema`` library's validator of a schema, by its ``$schema``, formats asserted.

    The library's ``multipleOf`` divides floats, so 0.07 is no multiple of 0.01; here it is exact.
    """
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    exact = jsonschema.validators.extend(kind, {"multipleOf": _multiple_of})
    return exact(schema, format_checker=kind.FORMAT_CHECKER)


def _multiple_of(
    validator: Any, factor: float, value: Any, schema: Any
) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(value, "number") and Fraction(str(value)) % Fraction(str(factor)):
        yield jsonschema.ValidationError(f"{value!r} is not a multiple of {factor!r}")


def _wrong_samples(schema: Any, walker: Walker, count: int = 5) -> list[str]:
    validator = validator_of(schema)
    rng = random.Random(0)
    wrong: list[str] = []
    for _ in range(count):
        text = walker.sample(rng, steps=rng.choice([0, 20, 200])).decode()
        value = json.loads(text)
        try:
            valid = validator.is_valid(value)
        except Exception:  # the library itself cannot use the schema
            return wrong
        if not valid:
            wrong.append(text)
    return wrong


Judge = Callable[[Case], Trial]
