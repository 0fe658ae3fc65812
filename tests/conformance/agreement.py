"""Compares the language of a schema with ``jsonschema``, value by value.

Values near the language: one must be in it exactly if the library finds it valid, except for
refusals and the spellings in ``verdicts``; and every random text of our language must be valid.

``disputed`` schemas have keywords of other drafts, and formats and patterns that validators read
differently. We rightly reject much of what the library accepts there, so the only disagreement is a
value that we accept and the library, asserting formats, finds invalid.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema
from jsonschema import FormatChecker

from app.constraint.formats import known_formats
from app.core.errors import ConstraintError, UnsatisfiableSchema
from app.core.specs import JsonSchema
from tests.conformance.random_schemas import mutated, random_value
from tests.conformance.verdicts import Verdict, judge, refusal
from tests.constraint.walks import Walker

VALUES = 12
SAMPLES = 4


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Differs from the library. ``kind``: ``accepts invalid``, ``rejects valid`` or ``crash``."""

    kind: str
    schema: Any
    value: Any
    note: str = ""

    def __str__(self) -> str:
        schema, value = json.dumps(self.schema), json.dumps(self.value, ensure_ascii=False)
        return f"{self.kind}: {schema}   {value}   {self.note}"


def check(
    schema: Any,
    rng: random.Random,
    counts: Counter[str],
    *,
    disputed: bool = False,
    any_value: Callable[[random.Random], Any] = random_value,
) -> Disagreement | None:
    """The first disagreement about a schema, over values drawn from ``rng``.

    ``disputed``: formats are asserted, and values that the library finds valid are skipped.
    ``any_value`` draws the values that are not made from valid ones.
    """
    try:
        validator = _validator(schema, formats=disputed)
    except jsonschema.SchemaError:  # a keyword's value is invalid in its draft
        counts["invalid in its draft"] += 1
        return None
    try:
        walker = _walker(schema)
    except ConstraintError as error:
        keyword = refusal(error)
        counts[f"refused by {keyword}"] += 1
        return None if keyword else Disagreement("crash", schema, None, repr(error))
    except Exception as error:  # a crash is a disagreement
        return Disagreement("crash", schema, None, repr(error))
    if walker is not None and walker.pool.inexact:
        counts["ambiguous keyword"] += 1  # enforced in one way, with a warning
        return None
    counts["unsatisfiable" if walker is None else "built"] += 1
    for value in _values(walker, rng, any_value):
        try:
            valid = validator.is_valid(value)
        except Exception:  # the library fails on some schemas
            counts["the library fails"] += 1
            continue
        if valid and disputed:
            continue
        verdict = judge(schema, value, valid=valid, walker=walker)
        counts[f"{'valid' if valid else 'invalid'}: {verdict}"] += 1
        if verdict is Verdict.WRONG:
            return Disagreement("rejects valid" if valid else "accepts invalid", schema, value)
    return None


def smallest(found: Disagreement, *, disputed: bool = False) -> Disagreement:
    """A minimal disagreement of the same kind: removes parts of schema and value one by one."""
    schema, value = found.schema, found.value
    progress = True
    while progress:
        progress = False
        pairs = [(smaller, value) for smaller in without_a_part(schema)]
        pairs += [(schema, smaller) for smaller in without_a_part(value)]
        for candidate in pairs:
            if disagrees(*candidate, disputed=disputed) == found.kind:
                (schema, value), progress = candidate, True
                break
    return Disagreement(found.kind, schema, value, found.note)


def disagrees(schema: Any, value: Any, *, disputed: bool = False) -> str:
    """The kind of disagreement about one value; "" if there is none."""
    try:
        valid = _validator(schema, formats=disputed).is_valid(value)
    except Exception:  # no longer a valid schema
        return ""
    try:
        walker = _walker(schema)
        if walker is not None and walker.pool.inexact:
            return ""
        wrong = judge(schema, value, valid=valid, walker=walker) is Verdict.WRONG
    except ConstraintError:
        return ""
    except Exception:  # the crash that is being minimized
        return "crash"
    return ("rejects valid" if valid else "accepts invalid") if wrong else ""


def _validator(schema: Any, *, formats: bool) -> Any:
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    kind.check_schema(schema)
    # Formats of all drafts: we enforce formats even if the draft does not define them.
    known = sorted(known_formats() & FormatChecker.checkers.keys())
    return kind(schema, format_checker=FormatChecker(known) if formats else None)


def _walker(schema: Any) -> Walker | None:
    try:
        walker = Walker.of(JsonSchema(schema))
    except UnsatisfiableSchema:
        return None
    return None if walker.is_empty else walker


def _values(
    walker: Walker | None, rng: random.Random, any_value: Callable[[random.Random], Any]
) -> Iterator[Any]:
    """Values of the language, values one or two changes away, and random values."""
    near = []
    for _ in range(SAMPLES if walker else 0):
        assert walker is not None
        near.append(json.loads(walker.sample(rng, rng.choice([0, 5, 20]))))
    yield from near
    for _ in range(VALUES):
        if near and rng.random() < 0.6:
            value = mutated(rng.choice(near), rng)
            yield mutated(value, rng) if rng.random() < 0.3 else value
        else:
            yield any_value(rng)


def without_a_part(value: Any) -> Iterator[Any]:
    """All values that lack one member or item somewhere, the largest parts first."""
    if isinstance(value, dict):
        for key in value:
            yield {other: part for other, part in value.items() if other != key}
        for key, part in value.items():
            yield from ({**value, key: smaller} for smaller in without_a_part(part))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield value[:place] + value[place + 1 :]
            for smaller in without_a_part(part):
                yield [*value[:place], smaller, *value[place + 1 :]]
