"""What to compute next: known tokens minus computed tokens, for many sequences at once."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from itertools import pairwise

from app.core.step import SampleRow, StepPlan
from app.engine.batch import Batch, Part, part_of
from app.engine.config import EngineConfig
from app.engine.fair_queue import FairQueue
from app.engine.sequence import Sequence
from app.kv.manager import BlockManager
from app.kv.prefix import CachedBlock

_MOST_PASSED = 8
"""Sequences that wait for a prefix and are passed over in one step: each costs a look at it."""


class Scheduler:
    """Owns the waiting queue, the running sequences and their cache blocks.

    ``running`` is in order of admission. Under pressure the last one admitted gives its blocks
    back and is the first to be admitted again; else tenants take turns, and each tenant's own
    come in order of arrival.
    """

    def __init__(
        self,
        config: EngineConfig,
        blocks: BlockManager,
        begin: Callable[[Sequence], None],
        spell: Callable[[Seq[int]], list[bytes]],
    ) -> None:
        self.running: list[Sequence] = []
        self.waiting: FairQueue[Sequence] = FairQueue(lambda sequence: sequence.request.tenant)
        self.taken_up: list[str] = []
        """Ids of the requests that the last plan took up for the first time."""
        self.blocks = blocks
        self._config = config
        self._begin = begin
        self._spell = spell

    def add(self, sequence: Sequence) -> None:
        self.waiting.push(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a finished or aborted sequence and free its blocks."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.blocks.free(sequence.blocks)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def plan(self) -> Batch:
        """Grant every running sequence its share, find blocks for it, admit with what is left."""
        queries, hits = self.blocks.queries, self.blocks.hits
        self.taken_up = []
        grants, prefill = self._grant()
        preemptions = self._find_blocks(grants)
        left = min(self._config.max_batch_tokens - sum(grants.values()), prefill)
        ended: list[Sequence] = []
        cached = 0 if preemptions else self._admit(left, grants, ended)
        parts: list[Part] = []
        rows: list[SampleRow] = []
        for sequence, granted in grants.items():
            part = part_of(sequence, granted)
            rows.extend(self._rows(part, len(parts)))
            parts.append(part)
        plan = StepPlan(tuple([part.span for part in parts]), tuple(rows))
        queries, hits = self.blocks.queries - queries, self.blocks.hits - hits
        return Batch(plan, parts, ended, cached, preemptions, queries, hits)

    def _grant(self) -> tuple[dict[Sequence, int], int]:
        """Tokens for each running sequence: small gaps first, the rest to long prompts.

        Every small gap gets one token at least, so that a step full of leaps delays nobody. Prompts
        may take all of it where no answer waits for the step. Also returns how many tokens of
        prompts the step may compute beside these.
        """
        config = self._config
        gaps = {sequence: sequence.gap for sequence in self.running}
        left, most = config.max_batch_tokens, config.small_gap_tokens
        grants = dict.fromkeys(gaps, 0)
        behind = small = sum([gap <= most for gap in gaps.values()])
        for sequence, gap in gaps.items():
            if gap <= most:
                behind -= 1
                grants[sequence] = min(gap, left - behind)
                left -= grants[sequence]
        prefill = config.max_prefill_tokens if small else config.max_batch_tokens
        if small == len(gaps):
            return grants, prefill
        for sequence, gap in gaps.items():
            if gap > most:
                grants[sequence] = min(gap, prefill, left)
                left -= grants[sequence]
                prefill -= grants[sequence]
        return {sequence: granted for sequence, granted in grants.items() if granted}, prefill

    def _find_blocks(self, grants: dict[Sequence, int]) -> int:
        """Grow tables to cover the grants, oldest first, preempting the last admitted if need be.

        The oldest sequence can take every block, and ``Engine.add`` made sure that those suffice:
        so some sequence always advances. Returns how many were preempted.
        """
        preempted = 0
        size = self.blocks.block_size
        for sequence in list(grants):
            if sequence not in grants:
                continue
            if sequence.computed + grants[sequence] <= len(sequence.blocks.blocks) * size:
                continue
            confirmed = len(sequence.tokens) - sequence.computed
            if not self.blocks.can_grow(sequence.blocks, sequence.computed + grants[sequence]):
                grants[sequence] = min(grants[sequence], confirmed)
            needed = sequence.computed + grants[sequence]
            while not self.blocks.can_grow(sequence.blocks, needed):
                victim = self.running[-1]
                self._preempt(victim)
                grants.pop(victim, None)
                preempted += 1
                if victim is sequence:
                    break
            else:
                self.blocks.grow(sequence.blocks, needed)
        return preempted

    def _preempt(self, sequence: Sequence) -> None:
        """Take all blocks from the sequence admitted last; what it knows it keeps."""
        assert sequence is self.running[-1]
        self.running.pop()
        self.blocks.free(sequence.blocks)
        sequence.computed = 0
        self.waiting.put_back(sequence)

    def _admit(self, left: int, grants: dict[Sequence, int], ended: list[Sequence]) -> int:
        """Start waiting sequences in turn while tokens and blocks suffice.

        A sequence that a running one is computing a prefix for waits for it, and is passed over.
        One that waits for blocks is not, or it would wait for ever. Returns how many prompt tokens
        were found in the cache.
        """
        config, cached, begun = self._config, 0, 0
        passed: list[Sequence] = []
        while left > 0 and len(self.running) < config.max_running:
            sequence = self.waiting.next(passed)
            if sequence is None:
                break
            if not sequence.begun:
                if begun == config.max_running:
                    break
                begun += 1
                self._begin(sequence)
                if sequence.finish_reason is not None:
                    self.waiting.take(sequence)
                    self.taken_up.append(sequence.request.request_id)
                    ended.append(sequence)
                    continue
            known = len(sequence.tokens) + len(sequence.draft)
            prefix = self.blocks.match(sequence.tokens, sequence.request.scope)
            if self._prefix_is_coming(sequence, len(prefix)):
                if self.waiting.has_returned or len(passed) == _MOST_PASSED:
                    break
                passed.append(sequence)
                continue
            if not self.blocks.can_allocate(known, prefix, reserve=len(self.running)):
                break
            cached += self._start(sequence, known, prefix)
            granted = min(known - sequence.computed, left)
            grants[sequence] = granted
            left -= granted
        return cached

    def _start(self, sequence: Sequence, known: int, prefix: Seq[CachedBlock]) -> int:
        """Run a waiting sequence. Returns how many of its prompt's tokens are news to be told.

        Its tenant is charged for the rest of the prompt now, once, and for the answer's tokens as
        they are computed.
        """
        self.waiting.take(sequence)
        self.running.append(sequence)
        sequence.blocks = self.blocks.allocate(known, prefix, sequence.request.scope)
        sequence.computed = len(prefix) * self.blocks.block_size
        if sequence.admitted:
            return 0
        sequence.admitted = True
        self.taken_up.append(sequence.request.request_id)
        sequence.cached_tokens = min(sequence.computed, sequence.answer_start)
        tenant = sequence.request.tenant
        self.waiting.charge(tenant, sequence.answer_start - sequence.cached_tokens)
        return sequence.cached_tokens

    def _prefix_is_coming(self, sequence: Sequence, blocks: int) -> bool:
        """Whether a running sequence is about to compute the next full block of this prefix."""
        if not self.blocks.share_prefixes:
            return False
        end = (blocks + 1) * self.blocks.block_size
        if end >= len(sequence.tokens):
            return False
        return any(
            other.computed < end <= other.answer_start
            and other.request.scope == sequence.request.scope
            and other.tokens[:end] == sequence.tokens[:end]
            for other in self.running
        )

    def _rows(self, part: Part, span: int) -> list[SampleRow]:
        if not part.draws:
            return []
        sequence = part.sequence
        params = sequence.request.sampling
        start = part.first_drawn - part.span.start
        if not part.draft.tokens and not params.has_penalties:
            return [SampleRow(span, start, params, sequence.keys(())[0])]
        spelled = self._spell(part.draft.tokens)
        texts = [b"".join(spelled[i:j]) for i, j in pairwise(part.draws)]
        keys = zip(part.draws, sequence.keys(texts), strict=True)
        if not params.has_penalties:
            return [SampleRow(span, start + i, params, key) for i, key in keys]
        known = [*sequence.tokens, *part.draft.tokens]
        confirmed = len(sequence.tokens)
        return [
            SampleRow(
                span,
                start + i,
                params,
                key,
                history=tuple(known[: confirmed + i]),
                answer_start=sequence.answer_start,
            )
            for i, key in keys
        ]

    def commit(self, part: Part, valid: int) -> None:
        """Account for a span: positions below ``valid`` hold what the tokens there need.

        Tokens that a leap replaced lower the computed count; the blocks they were in are cut
        back, never written while shared.
        """
        sequence = part.sequence
        self.waiting.charge(sequence.request.tenant, len(part.span.tokens) - part.num_prompt)
        computed = min(valid, len(sequence.tokens) - 1)
        full, size = len(sequence.blocks.chain), self.blocks.block_size
        if computed < full * size:
            computed = self.blocks.truncate(sequence.blocks, computed)
        sequence.computed = computed
        if computed >= (full + 1) * size:
            self.blocks.register(sequence.blocks, sequence.tokens, computed)

    def check_integrity(self) -> None:
        """Assert every invariant. Costs O(blocks + known tokens); for tests."""
        self.blocks.check_integrity([sequence.blocks for sequence in self.running])
        self.waiting.check_integrity()
        last: dict[str, int] = {}
        for sequence in self.waiting:
            if not sequence.admitted:
                tenant = sequence.request.tenant
                assert last.get(tenant, -1) < sequence.number, "not first come, first served"
                last[tenant] = sequence.number
        assert len(self.running) <= self._config.max_running
        for sequence in self.running:
            sequence.check_integrity()
            table = sequence.blocks
            assert sequence.computed <= len(table.blocks) * self.blocks.block_size
            assert len(table.chain) * self.blocks.block_size <= sequence.computed
        for sequence in self.waiting:
            assert sequence.computed == 0
            assert not sequence.blocks.blocks, "a waiting sequence holds blocks"
