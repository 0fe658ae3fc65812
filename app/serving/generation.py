"""The answers of one request while they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from app.answer.prompt import Opening
from app.core.errors import LeapjsonError
from app.core.events import AnswerUsage, TextChunk, TokenChunk
from app.serving.admission import Ticket
from app.serving.deadline import Deadline
from app.serving.ports import TextDecoder
from app.serving.timeline import Timeline

CLIENT_LEFT = 499
"""Status in metrics and logs of a request whose client did not wait (nginx's number)."""


class Generation:
    """An inbox of the worker on one side, text for the client on the other.

    What the client has not read yet waits here: a slow client holds nobody up, and what waits
    is bounded by ``max_tokens``. Who opened it calls ``close`` in the end, whatever happens.
    """

    def __init__(
        self,
        *,
        request_ids: Sequence[str],
        prompt_tokens: int,
        prompts: Sequence[int],
        openings: Sequence[Opening],
        decoders: Sequence[TextDecoder],
        ticket: Ticket,
        timeline: Timeline,
        abort: Callable[[Sequence[str]], None],
        status_of: Callable[[LeapjsonError], int],
    ) -> None:
        self.prompt_tokens = prompt_tokens
        """Of all prompts together."""
        self._prompts = prompts
        """Which prompt each choice answers."""
        self.openings = openings
        """Whether each choice begins inside its reasoning."""
        self.n = len(request_ids)
        self._index = {request_id: index for index, request_id in enumerate(request_ids)}
        self._decoders = decoders
        self._ticket = ticket
        self._timeline = timeline
        self._abort = abort
        self._status_of = status_of
        self._reasons: dict[int, str] = {}
        self._ready: list[TextChunk] = []
        self._enough = 1
        """Chunks that are ready for which the reader is woken."""
        self._failure: LeapjsonError | None = None
        self._news = asyncio.Event()
        self._taken_up = False
        self._expiry: asyncio.TimerHandle | None = None
        timeline.submitted(prompt_tokens)

    @property
    def usage(self) -> Mapping[int, AnswerUsage]:
        """The latest counts of each choice."""
        return self._timeline.usage

    @property
    def cached_tokens(self) -> int:
        """Tokens of all prompts together that were found in the prefix cache."""
        cached: dict[int, int] = {}
        for index, usage in self.usage.items():
            prompt = self._prompts[index]
            cached[prompt] = max(cached.get(prompt, 0), usage.cached_tokens)
        return sum(cached.values())

    async def begun(self) -> None:
        """Wait for the first chunk. Raises the error that came instead."""
        await self._news.wait()
        if self._failure is not None and not self._ready:
            raise self._failure

    async def batches(self, at_least: int = 1) -> AsyncIterator[Sequence[TextChunk]]:
        """What has come since the last batch, in order of arrival, until every choice ended.

        A batch is waited for until it has ``at_least`` so many chunks, or is the last one: who
        is in no hurry need not be woken by each step of the engine.
        Raises the error that ended the generation, after the chunks that came before it.
        """
        self._enough = at_least
        while True:
            await self._news.wait()
            self._news.clear()
            batch, self._ready = self._ready, []
            if batch:
                yield batch
            if self._ready:
                continue
            if self._failure is not None:
                raise self._failure
            if len(self._reasons) == self.n:
                return
            # Chunks that came while the batch was written have set the event again.

    def expire(self, deadline: Deadline) -> None:
        """Fail at ``deadline`` if it has not ended by then: what still runs is aborted."""

        def end() -> None:
            self._abort(list(self._index))
            finished = "the answer was not finished" if self._taken_up else "no answer began"
            self.on_failure(deadline.exceeded(finished))

        if not self._ended:
            self._expiry = asyncio.get_running_loop().call_at(deadline.moment, end)

    def close(self) -> None:
        """Abort what still runs. Needed on every path; does nothing after the end."""
        if not self._ended:
            self._end(CLIENT_LEFT, "abort")
        self._abort(list(self._index))

    def on_scheduled(self, moment: float) -> None:
        self._taken_up = True
        self._timeline.scheduled(moment)
        self._ticket.start()

    def on_chunk(self, chunk: TokenChunk) -> None:
        index = self._index[chunk.request_id]
        self._timeline.chunk(index, chunk.usage)
        if chunk.finish_reason in ("error", "abort"):
            self._abort(list(self._index))
            fault = LeapjsonError("the engine gave this answer up; a fault of the server")
            self.on_failure(chunk.error or fault)
            return
        text = self._decoders[index].push(chunk.data)
        if chunk.finish_reason is not None:
            text += self._decoders[index].finish()
            self._reasons[index] = chunk.finish_reason
        self._ready.append(TextChunk(index, text, chunk.tokens, chunk.usage, chunk.finish_reason))
        if len(self._reasons) == self.n:
            # The slowest way to end says most: "length" if any choice was cut.
            self._end(200, "length" if "length" in self._reasons.values() else "stop")
        if self._ended or len(self._ready) >= self._enough:
            self._news.set()

    def on_failure(self, error: LeapjsonError) -> None:
        self._failure = error
        self._end(self._status_of(error), "error", error)
        self._news.set()

    @property
    def _ended(self) -> bool:
        return self._failure is not None or len(self._reasons) == self.n

    def _end(self, status: int, finish_reason: str, error: LeapjsonError | None = None) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._timeline.end(status=status, finish_reason=finish_reason, error=error)
        self._ticket.release()
