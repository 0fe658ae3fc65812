"""The engine: requests in, chunks of answers out, one step at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from itertools import islice

from app.core.constraint import Vocabulary
from app.core.errors import BudgetTooSmall, InvalidRequest, PromptTooLong, RequestError, WorkPending
from app.core.events import StepObserver, StepOutput, StepStats, TokenChunk
from app.core.request import EngineRequest, ServiceTier
from app.core.step import Draw, Runner, SampledToken, StepInterrupted
from app.core.text import Tokenizer
from app.engine.batch import Batch, Portion, Stopwatch
from app.engine.budget import Budget, Thinking
from app.engine.config import EngineConfig
from app.engine.decoding import Decoder
from app.engine.draft import Source
from app.engine.mask_work import MaskWork
from app.engine.prompt_scores import PromptScores
from app.engine.scheduler import Scheduler
from app.engine.sequence import Sequence
from app.engine.stop_tokens import StopTokens
from app.engine.token_sources import TokenSources
from app.kv.manager import BlockManager

_log = logging.getLogger(__name__)

_MOST_UNOPENED = 64
"""Maximum sequences whose openings are prepared between two steps."""

_MOST_INTERRUPTED = 16
"""Maximum consecutive interruptions; then a step of flex and batch answers completes."""


class Engine:
    """Runs many answers at once over one runner. Everything on one thread.

    Serially, each call of ``step`` is a step::

        host      plan launch masks             commit emit | plan ...
        device         | forward pass   | draws |               | ...

    With ``EngineConfig.overlap`` a step is launched while the one before runs, so the device always
    has work. Answers whose next token is not known by then wait for the commit::

        host      plan N+1, launch | wait N, commit N, masks, draws N+1, emit N | plan N+2, launch
        device    forward pass N  | draws N | forward pass N+1             | draws N+1 | ...

    Either order gives the same answers. ``clock`` is read for the durations of ``StepStats``
    alone: no decision depends on it.
    """

    def __init__(
        self,
        runner: Runner,
        vocabulary: Vocabulary,
        tokenizer: Tokenizer,
        config: EngineConfig | None = None,
        observer: StepObserver | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        interrupt_when: Callable[[Callable[[], bool] | None], None] | None = None,
    ) -> None:
        """``interrupt_when`` sets a condition on which the runner aborts the next step with
        ``StepInterrupted``; None: not supported. Only steps of flex and batch answers get one,
        ``urgent``: whether a request of a higher class is about to be added."""
        self.urgent: Callable[[], bool] = lambda: False
        """Whether a request of a higher class is about to be added; set by the worker."""
        self._config = config = config or EngineConfig()
        self._interrupt_when = None if config.overlap else interrupt_when
        self._interrupted = 0
        """Consecutive interrupted steps."""
        self.given_up = 0
        """Number of interrupted steps. Any thread may read it, and the properties."""
        self._runner = runner
        self._observer = observer
        self._clock = clock
        self._vocabulary = vocabulary
        blocks = BlockManager(
            runner.cache_groups,
            runner.block_size,
            step_tokens=(2 if config.overlap else 1) * config.max_batch_tokens,
            share_prefixes=config.share_prefixes,
            states=runner.states,
        )
        self._scheduler = Scheduler(config, blocks, interruptible=self._interrupt_when is not None)
        self._decoder = Decoder(
            vocabulary, tokenizer, config, room=self.max_sequence_tokens, branching=runner.trees
        )
        self._sequences: dict[str, Sequence] = {}
        self._unmasked = MaskWork()
        """Sequences that wait for a mask."""
        self._unopened = MaskWork()
        """Sequences whose forced openings are not known yet."""
        self._opens = False
        """Whether deferred work in this step is for an opening; alternates with masks."""
        self._opened: list[Sequence] = []
        """Sequences that ended with their opening, until the next step emits them."""
        self._flight: Batch | None = None
        """The step that was launched and is not committed."""
        self._out_of_work_at: float | None = None
        """Since when the device is idle although there is work; None if it is not."""

    @property
    def max_sequence_tokens(self) -> int:
        """Tokens that the prompt and ``max_tokens`` of one request may have together."""
        return self._scheduler.blocks.longest(self._runner.max_model_len)

    @property
    def has_work(self) -> bool:
        """Whether ``step`` would do anything."""
        return self._flight is not None or bool(self._sequences)

    @property
    def num_running(self) -> int:
        return len(self._scheduler.running)

    @property
    def num_waiting(self) -> int:
        return len(self._scheduler.waiting) + len(self._unopened)

    @property
    def kv_usage(self) -> float:
        """Share of cache blocks that live sequences hold, in the fullest group, 0 to 1."""
        return self._scheduler.blocks.usage

    @property
    def state_usage(self) -> float:
        """Share of the slots for recurrent states that live sequences hold, 0 to 1."""
        states = self._scheduler.blocks.states
        return 0.0 if states is None else states.usage

    def add(self, request: EngineRequest) -> None:
        """Queue a request, and leap over a forced opening. Costs O(prompt), and the opening.

        Raises PromptTooLong where prompt and ``max_tokens`` can never fit, BudgetTooSmall where
        no valid answer fits in ``max_tokens``, InvalidRequest for an empty prompt, a budget
        below 1, an empty stop string, ``min_tokens`` out of 0 to ``max_tokens``, a stop token
        out of the vocabulary, an image that fits in no step or a ``request_id`` that is live. A
        thinking budget reserves at most what ``max_tokens`` has beyond the shortest answer.
        """
        if request.request_id in self._sequences:
            raise InvalidRequest(f"a request with the id {request.request_id!r} is already running")
        _check(request, self.max_sequence_tokens, self._config.most_whole)
        stop_tokens = StopTokens.of(request, self._vocabulary)
        state = request.start.copy() if request.start is not None else None
        if state is None and request.constraint is not None:
            state = request.constraint.start()
        budget = Budget(request.max_tokens)
        if state is not None and request.options.on_budget == "finish":
            budget.finishes = True
            if request.thinking is not None or not state.fits(request.max_tokens):
                needed = state.shortest_tokens(request.max_tokens)
                if needed > request.max_tokens:
                    raise BudgetTooSmall(max_tokens=request.max_tokens, needed=needed)
                if request.thinking is not None:
                    budget.thinking = Thinking(request.thinking, request.max_tokens - needed)
        sequence = Sequence(request, state, budget, stop_tokens)
        if request.options.origins:
            sequence.sources = TokenSources(self._decoder.spelling)
        if request.options.prompt_logprobs is not None:
            assert request.constraint is None, "an answer may begin before its prompt is scored"
            sequence.prompt_scores = PromptScores(
                request.prompt,
                self._decoder.spelling,
                request.options.prompt_logprobs,
                self._config.small_gap_tokens,
            )
        self._sequences[request.request_id] = sequence
        if len(self._unopened) < _MOST_UNOPENED:
            self._open(sequence)
        else:
            self._unopened.postpone(sequence)

    def abort(self, request_id: str) -> TokenChunk | None:
        """End a request now and free what it holds. Its last chunk; None if it is not live."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return None
        if self._flight is not None and sequence in self._flight.portions:
            self._flight.portions[sequence].void = True
        sequence.finish("abort")
        self._forget(sequence)
        return sequence.emit()

    def step(self) -> Iterator[StepOutput]:
        """Advance every sequence that the step has room for; exhaust the iterator.

        It yields the forced openings of newly scheduled sequences before the model computes; then
        one chunk for each answer that grew or ended (with overlap, in the step launched by the call
        before). An error of a constraint ends its answer with finish_reason "error"; errors of the
        runner are raised, and the engine cannot be used any more then. Call ``add`` and ``abort``
        only between steps.
        """
        lap = Stopwatch(self._clock)
        landing = self._flight
        batch = self._scheduler.survey(landing)
        if batch is None:
            self._land(None, lap)
            batch = self._scheduler.survey(None)
        assert batch is not None, "waiting for a step, but none is in flight"
        self._opens = bool(self._unopened) and not (self._opens and self._unmasked)
        self._unopened.begin_step(lambda sequence: self._opens)
        for sequence in [*islice(self._unopened, _MOST_UNOPENED)]:
            self._open(sequence)
        batch.scheduled, self._opened = self._opened, []
        self._scheduler.schedule(batch)
        spans = self._scheduler.plan(batch, self._flight)
        scheduled = [sequence.request.request_id for sequence in batch.scheduled]
        at_work = spans or scheduled or batch.resumed or landing or len(self._unopened)
        assert at_work or not self._sequences, "work, but no progress"
        for sequence in batch.scheduled:  # some have ended with their opening
            if sequence.finish_reason is not None:
                self._forget(sequence)
        if openings := [chunk for each in batch.scheduled if (chunk := each.emit()) is not None]:
            yield StepOutput(openings, scheduled)
            scheduled = []
        batch.stats.plan_seconds = lap()
        launched = bool(spans) and self._launch(spans, batch, lap)
        if self._flight is not None:
            self._land(batch, lap)
        if launched:
            draws = self._draws(batch)
            batch.stats.mask_seconds = lap()
            batch.pending = self._runner.sample(draws)
            batch.stats.sample_seconds = lap()
            self._flight = batch
        if self._flight is not None and not self._config.overlap:
            self._land(None, lap)
        ended = [] if landing is None else [landing]
        if batch is not self._flight and (batch.portions or batch.scheduled):
            ended.append(batch)
        added = [
            each for one in ended for each, portion in one.portions.items() if not portion.void
        ]
        if batch.failed:
            added = [*dict.fromkeys([*added, *batch.failed])]
        chunks = [chunk for each in added if (chunk := each.emit()) is not None]
        for each in ended:
            each.stats.commit_seconds += lap()
            counts, self._decoder.counts = self._decoder.counts, StepStats()
            if self._observer is not None:
                running, waiting = self.num_running, self.num_waiting
                self._observer.observe_step(each.finish_stats(counts, running, waiting))
        if chunks or scheduled:
            yield StepOutput(chunks, scheduled)

    def _launch(self, spans: Seq[Portion], batch: Batch, lap: Stopwatch) -> bool:
        """Launch the step; returns False if it was interrupted for a request of a higher class."""
        if self._out_of_work_at is not None:
            batch.stats.idle_seconds = lap.now - self._out_of_work_at
            self._out_of_work_at = None
        tiers = [sequence.tier for sequence in batch.portions]
        yields = max(tiers) < ServiceTier.DEFAULT and self._interrupted < _MOST_INTERRUPTED
        if self._interrupt_when is not None:
            self._interrupt_when(self.urgent if yields else None)
        try:
            self._runner.launch(spans)
        except StepInterrupted:
            self._interrupted += 1
            self.given_up += 1
            self._scheduler.take_back(batch)
            return False
        finally:
            batch.stats.launch_seconds = lap()
        if min(tiers) < ServiceTier.DEFAULT:
            self._interrupted = 0
        return True

    def _land(self, after: Batch | None, lap: Stopwatch) -> None:
        """Wait for the step in flight and commit it; ``after`` has been launched meanwhile."""
        batch, self._flight = self._flight, None
        assert batch is not None
        assert batch.pending is not None
        drawn = batch.pending.wait().tokens
        batch.stats.sample_seconds += lap()
        if after is None or not after.portions:
            self._out_of_work_at = lap.now
        self._commit(batch, drawn, {} if after is None else after.portions)
        if not self.has_work:
            self._out_of_work_at = None
        batch.stats.commit_seconds = lap()

    def _open(self, sequence: Sequence) -> None:
        """Leap over a forced opening, then queue the sequence.

        An opening that takes too much work for one step is continued in the next.
        """
        try:
            if sequence.state is not None:
                sequence.state.prepare(work=self._unopened.work_for(sequence, len(self._sequences)))
            self._unopened.done(sequence)
            self._decoder.begin(sequence)
        except WorkPending:
            self._unopened.postpone(sequence)
            return
        except Exception as error:
            self._unopened.done(sequence)
            self._fail(sequence, error)
        if sequence.finish_reason is None:
            self._scheduler.add(sequence)
        else:
            self._opened.append(sequence)

    def _draws(self, batch: Batch) -> list[Draw | None]:
        """One for each row of the step; None stands for a row that is not used."""
        draws: list[Draw | None] = []
        self._unmasked.begin_step(
            lambda sequence: (
                not self._opens
                and (portion := batch.portions.get(sequence)) is not None
                and bool(portion.draws)
                and not portion.void
            )
        )
        for portion in batch.portions.values():
            if portion.scoring is not None:
                draws += portion.scoring.draws()
                continue
            if not portion.draws and not portion.prompt_rows:
                continue
            if portion.void:
                draws += [None] * (len(portion.draws) + len(portion.prompt_rows))
                continue
            sequence = portion.sequence
            try:
                work = self._unmasked.work_for(sequence, len(self._sequences))
                masks = self._decoder.masks(portion, work)
                if sequence.state is not None and sequence.state.gave_up:
                    batch.stats.masks_given_up += 1
                    if sequence in self._unmasked:
                        _log.warning(
                            "request %s: a token mask took too much work; continuing with the "
                            "first token of its shortest completion",
                            sequence.request.request_id,
                        )
                draws += portion.draws_from(masks, self._decoder.spelling)
                portion.num_usable = len(masks)
                self._unmasked.done(sequence)
            except WorkPending:
                # Nothing is drawn; the next step computes the last token again.
                self._unmasked.postpone(sequence)
                batch.stats.masks_put_off += 1
            except Exception as error:
                self._fail(sequence, error)
                self._forget(sequence)
                portion.void = True
                batch.failed.append(sequence)
            if portion.num_usable < len(portion.draws):
                draws += [None] * (len(portion.draws) - portion.num_usable)
            if portion.prompt_rows:
                assert sequence.prompt_scores is not None
                draws += sequence.prompt_scores.draws(portion.prompt_rows)
        return draws

    def _commit(
        self, batch: Batch, drawn: Seq[SampledToken], launched: Mapping[Sequence, Portion]
    ) -> None:
        """Give every sequence its drawn tokens, and account for its computed ones.

        ``launched``: portions of the step launched since. Ended sequences are removed; new tokens
        are emitted later.
        """
        running = self.num_running
        for sequence, portion in batch.portions.items():
            if portion.void:
                continue
            sequence.forward_passes += 1
            row, valid, later = portion.row, portion.end, launched.get(sequence)
            if portion.prompt_rows and sequence.prompt_scores is not None:
                scores = row + len(portion.draws)
                sequence.prompt_scores.take(
                    portion.prompt_rows, drawn[scores : scores + len(portion.prompt_rows)]
                )
            try:
                if portion.scoring is None:
                    valid = self._take(portion, drawn[row : row + len(portion.draws)])
                else:
                    portion.scoring.receive(drawn[row : row + portion.scoring.num_rows])
                    if portion.scoring.is_done:
                        valid = min(valid, self._decoder.finish_choice(sequence))
            except Exception as error:
                self._fail(sequence, error)
            if sequence.prediction is not None and portion.num_taken:
                sequence.prediction.drafted += portion.draft.sources.count(Source.PREDICTED)
            if sequence.finish_reason != "error":
                self._scheduler.commit(portion, valid)
            if later is not None:
                self._scheduler.follow(later, drawn[row].token_id if portion.draws else -1)
            if (portion.num_taken or portion.scoring) and sequence.finish_reason is None:
                try:  # draft the continuation, unless it is launched already
                    if later is None or later.void:
                        self._decoder.draft(sequence, running)
                    else:
                        self._decoder.learn(sequence, running)
                except Exception as error:
                    self._fail(sequence, error)
                    if later is not None:
                        later.void = True
            if sequence.finish_reason is not None:
                self._forget(sequence)

    def _take(self, portion: Portion, drawn: Seq[SampledToken]) -> int:
        """Take draws while the cache matches the tokens before them; returns its valid length.

        The first draw follows the confirmed tokens. A later one counts if the answer now equals the
        draft up to there, by draws or leaps: then it is the same draw that plain decoding would
        make next.
        """
        sequence, valid = portion.sequence, portion.end
        if not portion.draft.tokens:
            if not portion.num_usable:
                return valid
            valid = min(valid, self._decoder.take(sequence, drawn[0]))
            portion.num_taken = int(not sequence.drawn_again)
            return valid
        while sequence.finish_reason is None:
            last = len(sequence.tokens) - 1
            index = portion.draw_at(last) if last < valid else None
            if index is None:
                break
            changed = self._decoder.take(sequence, drawn[index])
            if sequence.drawn_again:
                return min(valid, changed)
            portion.num_taken += 1
            valid = portion.agreeing(sequence.tokens, changed, valid)
            portion.num_accepted += self._decoder.record(portion, last + 1)
            if sequence.scoring is not None:
                return min(valid, changed)
        return valid

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        """End one answer after an error of its constraint; others are not affected."""
        request_id = sequence.request.request_id
        if isinstance(error, RequestError):
            sequence.error = error.with_traceback(None)
            _log.warning("the constraint of request %s failed: %s", request_id, error)
        else:
            _log.error("the constraint of request %s failed", request_id, exc_info=error)
        sequence.finish("error")

    def _forget(self, sequence: Sequence) -> None:
        del self._sequences[sequence.request.request_id]
        self._unmasked.done(sequence)
        self._unopened.done(sequence)
        if sequence in self._opened:
            self._opened.remove(sequence)
        self._scheduler.remove(sequence)


def _check(request: EngineRequest, room: int, most_whole: int) -> None:
    """``room``: tokens that prompt and answer may have together; ``most_whole``: those that are
    computed in one step. Raises as ``Engine.add`` does."""
    if not request.prompt:
        raise InvalidRequest("the prompt is empty", role="prompt")
    if request.max_tokens < 1:
        raise InvalidRequest("max_tokens must be at least 1", role="max_tokens")
    if not all(request.options.stop):
        raise InvalidRequest("a stop string is empty", param="stop")
    prompt_tokens = len(request.prompt)
    if prompt_tokens >= room:
        raise PromptTooLong(prompt_tokens=prompt_tokens, room=room)
    if prompt_tokens + request.max_tokens > room:
        raise PromptTooLong(prompt_tokens=prompt_tokens, room=room, max_tokens=request.max_tokens)
    longest = 0 if request.images is None else request.images.longest_whole
    if longest > most_whole:
        raise InvalidRequest(
            f"an image of {longest} tokens must be computed in one step, and the limit is "
            f"{most_whole} tokens (max_batch_tokens minus max_running)",
            role="prompt",
        )
