"""Checks whether answers to a relaxed schema satisfy the original schema anyway.

Runs in a compile worker: matching a pattern of a schema may take for ever.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from app.constraint.limits import Limits
from app.constraint.schema.edits import edited, renamed, widening
from app.core.constraint import Written

SECONDS = 0.5
"""Maximum processor time, in seconds, for the texts of one schema."""


def satisfied(written: Written, limits: Limits | None = None) -> list[bool | None]:
    """For each relaxation, whether all texts satisfy what it dropped; None if unknown.

    Uses ``jsonschema``, which asserts no formats and follows no external references. Each
    relaxation is checked with all others applied. Only for the main thread (signals). ``limits``
    are unused: all jobs of a worker get them.
    """
    import jsonschema  # noqa: F401 - most workers never need it; it is not timed

    found: list[bool | None] = [None] * len(written.relaxed)
    try:
        values = [json.loads(text) for text in written.texts]
        with _alarm(SECONDS):
            if any(each.keyword == "$schema" for each in written.relaxed):
                return found  # the dialect is unknown
            whole = _are_valid(written.schema, values)
            if whole or (len(found) == 1 and not written.relaxed[0].inexact):
                found = [whole] * len(found)
            else:
                for number in range(len(found)):
                    found[number] = _are_valid(_relaxed_but(written, number), values)
    except (ValueError, RecursionError, _OutOfTime):
        pass
    unknown = [each.inexact or each.keyword == "format" for each in written.relaxed]
    return [None if one else each for one, each in zip(unknown, found, strict=True)]


def _relaxed_but(written: Written, number: int) -> Any:
    """The schema with all relaxations but one."""
    schema, kept = written.schema, written.relaxed[number]
    for index, each in enumerate(written.relaxed):
        moving = [(kept.place, kept.keyword)] if kept.moves and index > number else []
        edit = (renamed(each.place, moving), each.keyword)
        if each.inexact:  # nothing was dropped: remove what the library would reject
            schema = edited(schema, *widening(schema, edit, Limits()))
        elif index != number:
            schema = edited(schema, edit)
    return schema


def _are_valid(schema: Any, values: list[Any]) -> bool | None:
    """Whether all values are valid; None for a schema that the library cannot use."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from jsonschema_specifications import REGISTRY

    validator = validator_for(schema, Draft202012Validator)(schema, registry=REGISTRY)
    try:
        return all(validator.is_valid(value) for value in values)
    except (_OutOfTime, RecursionError):
        raise
    except Exception:  # an external reference, or a pattern that Python's ``re`` cannot read
        return None


class _OutOfTime(BaseException):
    """Raised by the alarm, at any point in the library."""


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise ``_OutOfTime`` in the block after ``seconds`` of processor time, even in a match."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
