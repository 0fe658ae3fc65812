"""The answers of one request while they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from app.answer.choice import ChoiceReader
from app.answer.fields import ClosedValue
from app.answer.pieces import Piece
from app.answer.plan import AnswerPlan
from app.answer.spans import Quotable
from app.answer.warnings import RelaxedAnswers
from app.core.errors import LeapjsonError
from app.core.events import AnswerUsage, TokenChunk
from app.core.request import EngineRequest
from app.serving.admission import Ticket
from app.serving.admission.admission import Deadline
from app.serving.timeline import Timeline

_TOGETHER = 32
"""Chunks that are read in one go: with all log-probabilities writing them takes milliseconds."""

CLIENT_LEFT = 499
"""Status in metrics and logs of a request whose client did not wait (nginx's number)."""


class Generation:
    """Turns the worker's chunks into pieces for the client.

    Unread chunks wait here: a slow client delays no other, and the amount is bounded by
    ``max_tokens``. ``close`` must be called in the end, whatever happens.
    """

    def __init__(
        self,
        choices: Sequence[EngineRequest],
        plans: Sequence[AnswerPlan],
        *,
        exact: bool = False,
        texts: Sequence[Quotable | None],
        ticket: Ticket,
        timeline: Timeline,
        abort: Callable[[Sequence[str]], None],
        status_of: Callable[[LeapjsonError], int],
        relaxed: RelaxedAnswers | None = None,
    ) -> None:
        """``plans``: one for each prompt, whose ``choices`` follow one another. ``exact``: choices
        of values are drawn as wholes. ``texts``: of each plan, where values are looked up, if their
        places are reported. ``relaxed``: collects answers that are not held to all of their schema.
        ``ticket`` leaves when all have ended."""
        options = choices[0].options
        self.relaxed = relaxed
        self.closed: list[ClosedValue] = []
        """For each choice, the first value that its budget cut short."""
        self._cut: list[tuple[int, bytes]] = []
        """Choices with such a value not in ``closed`` yet, and their text up to its end."""
        self.shows_schema = plans[0].shows_schema
        """See ``AnswerPlan``."""
        self.max_tokens = min([each.max_tokens for each in choices])
        """``max_tokens`` of the answers; the minimum if there are several prompts."""
        self.tenant = ticket.tenant
        self.tier = ticket.tier
        """Tier of all answers."""
        self.request_id = timeline.request_id
        self.n = len(choices)
        self._index = {each.request_id: index for index, each in enumerate(choices)}
        self._plans = plans
        self._choices_each = self.n // len(plans)
        self._prompt_tokens = sum(len(plan.prompt) for plan in plans)
        self._readers = [
            ChoiceReader(plan, options, exact=exact, texts=text)
            for plan, text in zip(plans, texts, strict=True)
            for _ in range(self._choices_each)
        ]
        self._ticket = ticket
        self._timeline = timeline
        self._abort = abort
        self._status_of = status_of
        self._reasons: dict[int, str] = {}
        self._unread: list[TokenChunk] = []
        self._enough = 1
        """Number of unread chunks that wakes the reader."""
        self._waiting: asyncio.Future[None] | None = None
        """The reader, while it waits."""
        self._failure: LeapjsonError | None = None
        self._ended = False
        self._scheduled = False
        self._expiry: asyncio.TimerHandle | None = None
        timeline.submitted(self._prompt_tokens)

    def usage(self) -> AnswerUsage:
        """What the answers cost so far; a prompt counts once for all of its own."""
        cached: dict[int, int] = {}
        for index, each in self._timeline.usage.items():
            prompt = index // self._choices_each
            cached[prompt] = max(cached.get(prompt, 0), each.cached_tokens)
        usage = AnswerUsage.sum(self._timeline.usage.values())
        usage.prompt_tokens = self._prompt_tokens
        usage.cached_tokens = sum(cached.values())
        reasoning = sum(reader.reasoning_tokens for reader in self._readers)
        usage.reasoning_tokens = min(reasoning, usage.completion_tokens)
        return usage

    async def begun(self, within: float | None = None) -> None:
        """Wait for the first chunk, at most ``within`` seconds; raises an earlier error."""
        if not self._unread and not self._ended:
            await self._news(within)
        if self._failure is not None and not self._unread:
            raise self._failure

    async def batches(
        self, at_least: int = 1, *, silence: float | None = None
    ) -> AsyncIterator[Sequence[tuple[int, list[Piece]]]]:
        """What has come since the last batch, by choice, until all have ended.

        Waits until a batch has ``at_least`` so many chunks, or is the last one: an answer that is
        not streamed need not wake for each step of the engine. Batches are of a bounded size, and
        other tasks have their turn between two of them. After ``silence`` seconds without a chunk
        comes an empty batch. Raises the error that ended the generation, after what came before it.
        """
        self._enough = at_least
        while True:
            if len(self._unread) < at_least and not self._ended:
                await self._news(silence)
            if not self._unread and self._ended:
                break
            deltas = self._read() if self._unread else ()
            if self._cut:  # in a thread: the texts may be long
                await asyncio.to_thread(self._find_closed)
            yield deltas
            if self._unread:
                await asyncio.sleep(0)
        if self._failure is not None:
            raise self._failure

    async def _news(self, within: float | None) -> None:
        """Wait until there is enough to read, the end is known, or the time has passed."""
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        timer = None if within is None else loop.call_later(within, self._wake)
        await self._waiting
        if timer is not None:
            timer.cancel()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _read(self) -> list[tuple[int, list[Piece]]]:
        """Take the first unread chunks. What several steps added to a choice is joined."""
        chunks, self._unread = self._unread[:_TOGETHER], self._unread[_TOGETHER:]
        of_choices: dict[int, list[TokenChunk]] = {}
        for chunk in chunks:
            of_choices.setdefault(self._index[chunk.request_id], []).append(chunk)
        deltas = []
        for index, own in of_choices.items():
            pieces = self._readers[index].read(own)
            last = own[-1]
            if last.finish_reason is not None and last.closed is not None:
                self._cut.append((index, last.closed))
            if self.relaxed is not None:
                self.relaxed.read(index, pieces)
            deltas.append((index, pieces))
        return deltas

    def _find_closed(self) -> None:
        cut, self._cut = self._cut, []
        for index, text in cut:
            closed = self._plans[index // self._choices_each].closed_value(index, text)
            if closed is not None:
                self.closed.append(closed)

    def expire(self, deadline: Deadline) -> None:
        """Fail at ``deadline`` if it has not ended by then: what still runs is aborted."""

        def end() -> None:
            self._abort(list(self._index))
            finished = "the answer was not complete" if self._scheduled else "no answer had started"
            self.on_failure(deadline.exceeded(finished))

        if not self._ended:
            self._expiry = asyncio.get_running_loop().call_at(deadline.moment, end)

    def close(self) -> None:
        """Abort what still runs. Needed on every path; does nothing after the end."""
        if not self._ended:
            self._end(CLIENT_LEFT, "abort")
        self._abort(list(self._index))

    def on_scheduled(self, moment: float) -> None:
        """A step that began at ``moment`` (of the worker's clock) scheduled a choice."""
        self._scheduled = True
        self._timeline.scheduled(moment)
        self._ticket.start()

    def on_chunk(self, chunk: TokenChunk, moment: float) -> None:
        """``moment``: when the step that made it reached the event loop."""
        index = self._index[chunk.request_id]
        self._timeline.chunk(index, chunk.usage, moment)
        if chunk.finish_reason in ("error", "abort"):
            self._abort(list(self._index))
            fault = LeapjsonError("internal error: the engine abandoned this answer")
            self.on_failure(chunk.error or fault)
            return
        self._unread.append(chunk)
        if chunk.finish_reason is not None:
            self._reasons[index] = chunk.finish_reason
            if len(self._reasons) == self.n:
                # Of several choices: "length" if any was cut.
                self._end(200, "length" if "length" in self._reasons.values() else "stop")
        if self._waiting is not None and len(self._unread) >= self._enough:
            self._wake()

    def on_failure(self, error: LeapjsonError) -> None:
        """Nothing more will come."""
        self._failure = error
        self._end(self._status_of(error), "error", error)

    def _end(self, status: int, finish_reason: str, error: LeapjsonError | None = None) -> None:
        self._ended = True
        self._wake()
        if self._expiry is not None:
            self._expiry.cancel()
        self._timeline.end(status=status, finish_reason=finish_reason, error=error)
        self._ticket.leave()
