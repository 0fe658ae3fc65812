"""Answers that were not held to all of their schema, checked when they are whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from app.answer.warnings import RelaxedAnswers, Warned
from app.core.constraint import Written
from app.serving.tasks import Tasks

SECONDS = 1.0
"""Maximum time that the end of an answer waits for the check."""

Check = Callable[[Written, str], Awaitable[list[bool | None]]]
"""From texts and the tenant that asks to what each relaxation of theirs dropped is satisfied."""


class Validation:
    """Asks ``check``, which runs in another process. Event loop's thread only.

    An answer never waits long for the check and never fails because of it: undecided results stay
    unknown. A started job is not cancelled, because that would kill a shared worker; at most
    ``most`` jobs run at a time.
    """

    def __init__(self, check: Check, *, seconds: float = SECONDS, most: int = 8) -> None:
        self._check = check
        self._seconds = seconds
        self._most = most
        self.tasks = Tasks()

    async def complete(self, answers: RelaxedAnswers, tenant: str) -> None:
        """Note in the warnings of ``answers`` whether they are satisfied."""
        tasks = []
        for warned, written in answers.written():
            if len(self.tasks) < self._most:
                tasks.append(self.tasks.start(self._one(warned, written, tenant)))
        if tasks:
            await asyncio.wait(tasks, timeout=self._seconds)

    async def _one(self, warned: list[Warned], written: Written, tenant: str) -> None:
        for each, satisfied in zip(warned, await self._check(written, tenant), strict=True):
            each.satisfied = satisfied
