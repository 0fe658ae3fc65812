"""Validation of relaxed answers: one check for all choices, and a bounded wait for it."""

from __future__ import annotations

import asyncio

from app.answer.pieces import Content
from app.answer.warnings import RelaxedAnswers
from app.core.constraint import Relaxation, Written
from app.core.specs import JsonSchema
from app.serving.compiling.validation import Validation
from tests.serving.fakes import until

PATTERN = Relaxation("/pattern", "pattern", "", "")


def answers(*texts: str) -> RelaxedAnswers:
    found = RelaxedAnswers([PATTERN], JsonSchema({"pattern": "x"}), None)
    for index, text in enumerate(texts):
        found.read(index, [Content(text)])
    return found


async def test_the_texts_of_all_choices_are_checked_together() -> None:
    asked: list[tuple[Written, str]] = []

    async def check(written: Written, tenant: str) -> list[bool | None]:
        asked.append((written, tenant))
        return [True]

    found = answers('"a"', '"b"')
    await Validation(check).complete(found, "me")
    assert [each.satisfied for each in found.warnings] == [True]
    assert asked == [(Written({"pattern": "x"}, (PATTERN,), ('"a"', '"b"')), "me")]


async def test_nothing_is_asked_where_nothing_was_written() -> None:
    async def check(written: Written, tenant: str) -> list[bool | None]:
        raise AssertionError

    found = answers()
    await Validation(check).complete(found, "")
    assert [each.satisfied for each in found.warnings] == [None]


async def test_a_late_check_leaves_warnings_unknown_and_few_checks_wait() -> None:
    gate, asked = asyncio.Event(), 0

    async def check(written: Written, tenant: str) -> list[bool | None]:
        nonlocal asked
        asked += 1
        await gate.wait()
        return [False]

    validation = Validation(check, seconds=0.01, most=2)
    found = [answers('"a"') for _ in range(4)]
    for each in found:
        await validation.complete(each, "")
        assert each.warnings[0].satisfied is None
    assert asked == 2
    gate.set()
    await until(lambda: not validation.tasks)
    validation._seconds = 60
    late = answers('"a"')
    await validation.complete(late, "")
    assert late.warnings[0].satisfied is False
    await validation.tasks.close()


async def test_a_check_that_fails_leaves_it_unknown() -> None:
    async def check(written: Written, tenant: str) -> list[bool | None]:
        raise RuntimeError("no worker")

    found = answers('"a"')
    await Validation(check).complete(found, "")
    assert found.warnings[0].satisfied is None
