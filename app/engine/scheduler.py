"""Who computes how much next: known tokens minus computed tokens, for many sequences at once."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq

from app.core.step import LogitsRow, StepPlan
from app.engine.batch import Batch, Portion
from app.engine.config import EngineConfig
from app.engine.fair_queue import FairQueue
from app.engine.sequence import Sequence
from app.kv.manager import BlockManager
from app.kv.prefix import Prefix

_MOST_PASSED = 8
"""Sequences that wait for a prefix and are passed over in one step: each costs a look at it."""


class Scheduler:
    """Owns the waiting queue, the running sequences and their cache blocks.

    ``running`` is in the order in which they were scheduled. Under pressure the last one gives its
    blocks back and is the first to be scheduled again; else tenants take turns, and each tenant's
    own come in order of arrival.
    """

    def __init__(self, config: EngineConfig, blocks: BlockManager) -> None:
        self.running: list[Sequence] = []
        self.waiting: FairQueue[Sequence] = FairQueue(lambda sequence: sequence.request.tenant)
        self.blocks = blocks
        self._config = config
        self._needed: dict[Sequence, Seq[int]] = {}
        """Free blocks, by group, that waiting sequences asked for in vain, since one was last
        scheduled. Until so many are free their prefixes are not matched again: they would need
        hardly fewer."""

    def add(self, sequence: Sequence) -> None:
        self.waiting.push(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a finished or aborted sequence and free its blocks."""
        self._needed.pop(sequence, None)
        if sequence in self.running:
            self.running.remove(sequence)
            self.blocks.free(sequence.blocks)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def schedule(self, batch: Batch) -> Iterator[Sequence]:
        """Grant tokens and blocks to those that run; with what is left, run those that wait.

        Yields each sequence whose first turn has come, for the caller to begin it: what it leaps
        over then needs blocks, too. One that ends there has had its turn and never runs.
        """
        prefill = self._grant(batch)
        self._find_blocks(batch)
        left = min(self._config.max_batch_tokens - sum(batch.grants.values()), prefill)
        passed: list[Sequence] = []
        begun = 0
        while left > 0 and not batch.preemptions and len(self.running) < self._config.max_running:
            sequence = self.waiting.next(passed)
            if sequence is None:
                return
            if not sequence.begun:
                if begun == self._config.max_running:
                    return
                begun += 1
                yield sequence
                if sequence.finish_reason is not None:
                    self.waiting.take(sequence)
                    batch.scheduled.append(sequence)
                    continue
            if sequence in self._needed and self._needs_more(self._needed[sequence]):
                return
            prefix = self.blocks.match(sequence.tokens, sequence.request.scope)
            if self._prefix_is_coming(sequence, len(prefix)):
                if self.waiting.has_returned or len(passed) == _MOST_PASSED:
                    return
                passed.append(sequence)
                continue
            # Whoever waits for blocks is not passed over, or it would wait for ever.
            needed = self.blocks.needed(sequence.num_known, prefix)
            if self._needs_more(needed):
                self._needed[sequence] = needed
                return
            self._run(sequence, prefix, batch)
            granted = min(sequence.gap, left)
            batch.grants[sequence] = granted
            left -= granted

    def plan(self, batch: Batch) -> StepPlan:
        """What the runner computes of those that were granted tokens; changes nothing else."""
        rows: list[LogitsRow] = []
        for sequence, granted in batch.grants.items():
            portion = Portion.of(sequence, granted)
            rows += portion.rows(len(batch.portions))
            batch.portions.append(portion)
        return StepPlan(tuple([portion.span for portion in batch.portions]), tuple(rows))

    def _grant(self, batch: Batch) -> int:
        """Tokens for each running sequence: small gaps first, the rest to long prompts.

        Every small gap gets one token at least, so that a step full of leaps delays nobody. Prompts
        may take all of it where no answer waits for the step. Returns how many tokens of prompts
        the step may compute beside these.
        """
        config = self._config
        gaps = {sequence: sequence.gap for sequence in self.running}
        left, most = config.max_batch_tokens, config.small_gap_tokens
        batch.grants = grants = dict.fromkeys(gaps, 0)
        behind = small = sum([gap <= most for gap in gaps.values()])
        for sequence, gap in gaps.items():
            if gap <= most:
                behind -= 1
                grants[sequence] = min(gap, left - behind)
                left -= grants[sequence]
        prefill = config.max_prefill_tokens if small else config.max_batch_tokens
        if small == len(gaps):
            return prefill
        for sequence, gap in gaps.items():
            if gap > most:
                granted = min(gap, prefill, left)
                left -= granted
                prefill -= granted
                if granted:
                    grants[sequence] = granted
                else:
                    del grants[sequence]
        return prefill

    def _find_blocks(self, batch: Batch) -> None:
        """Grow tables to cover the grants, oldest first, preempting the newest if need be.

        The oldest sequence can take every block, and ``Engine.add`` made sure that those suffice:
        so some sequence always advances.
        """
        grants, blocks = batch.grants, self.blocks
        for sequence in list(grants):
            if sequence not in grants:
                continue
            needed = sequence.computed + grants[sequence]
            if needed <= sequence.blocks.covered * blocks.block_size:
                continue
            if not blocks.can_grow(sequence.blocks, needed):  # without the draft, then
                grants[sequence] = min(grants[sequence], len(sequence.tokens) - sequence.computed)
                needed = sequence.computed + grants[sequence]
            while sequence in grants and not blocks.can_grow(sequence.blocks, needed):
                grants.pop(self._preempt(), None)
                batch.preemptions += 1
            if sequence in grants:
                blocks.grow(sequence.blocks, needed)

    def _preempt(self) -> Sequence:
        """Take all blocks from the sequence scheduled last; what it knows it keeps."""
        sequence = self.running[-1]
        self._put_back(sequence)
        return sequence

    def _put_back(self, sequence: Sequence) -> None:
        """Have a running sequence wait again, for its turn to come first."""
        self.running.remove(sequence)
        self.blocks.free(sequence.blocks)
        sequence.computed = 0
        self.waiting.put_back(sequence)

    def _needs_more(self, blocks: Seq[int]) -> bool:
        """Whether so many, by group, are not free beside one for each sequence that runs."""
        return not self.blocks.has_free(blocks, len(self.running))

    def _run(self, sequence: Sequence, prefix: Seq[Prefix], batch: Batch) -> None:
        """Give a waiting sequence its blocks, those of its prefix first.

        Its tenant is charged for the rest of the prompt now, once, and for the answer's tokens as
        they are computed.
        """
        self._needed.clear()
        self.waiting.take(sequence)
        self.running.append(sequence)
        known, blocks = sequence.num_known, self.blocks
        sequence.blocks = blocks.allocate(known, prefix, sequence.request.scope)
        sequence.computed = len(prefix) * blocks.block_size
        if blocks.share_prefixes:
            batch.prefix_queries += (known - 1) // blocks.block_size
            batch.prefix_hits += len(prefix)
        if sequence.scheduled:
            return
        sequence.scheduled = True
        batch.scheduled.append(sequence)
        sequence.cached_tokens = min(sequence.computed, sequence.answer_start)
        batch.cached_tokens += sequence.cached_tokens
        own = sequence.answer_start - sequence.cached_tokens
        self.waiting.charge(sequence.request.tenant, own)

    def _prefix_is_coming(self, sequence: Sequence, blocks: int) -> bool:
        """Whether a running sequence is about to compute the next full block of this prefix."""
        end = (blocks + 1) * self.blocks.block_size
        if not self.blocks.share_prefixes or end >= len(sequence.tokens):
            return False
        return any(
            other.computed < end <= other.answer_start
            and other.request.scope == sequence.request.scope
            and other.tokens[:end] == sequence.tokens[:end]
            for other in self.running
        )

    def commit(self, portion: Portion, valid: int) -> None:
        """Account for a span: positions below ``valid`` hold what the tokens there need.

        Tokens that a leap replaced lower the computed count; the blocks they were in are cut
        back, never written while shared. Where it falls below what windows were given back for,
        the sequence waits again and starts from the prefix cache.
        """
        sequence = portion.sequence
        self.waiting.charge(sequence.request.tenant, len(portion.span.tokens) - portion.num_prompt)
        computed = min(valid, len(sequence.tokens) - 1)
        full, size = len(sequence.blocks.chain), self.blocks.block_size
        if computed < full * size:
            computed = self.blocks.truncate(sequence.blocks, computed)
        if computed < sequence.blocks.least:
            self._put_back(sequence)
            return
        sequence.computed = computed
        if computed >= (full + 1) * size:
            self.blocks.advance(sequence.blocks, sequence.tokens, computed)

    def check_integrity(self) -> None:
        """Assert every invariant. Costs O(blocks + known tokens); for tests."""
        self.blocks.check_integrity([sequence.blocks for sequence in self.running])
        self.waiting.check_integrity()
        last: dict[str, int] = {}
        for sequence in self.waiting:
            assert sequence.computed == 0
            assert not sequence.blocks.columns, "a waiting sequence holds blocks"
            if not sequence.scheduled:
                tenant = sequence.request.tenant
                assert last.get(tenant, -1) < sequence.number, "not first come, first served"
                last[tenant] = sequence.number
        assert len(self.running) <= self._config.max_running
        for sequence in self.running:
            sequence.check_integrity()
            table = sequence.blocks
            assert table.least <= sequence.computed <= table.covered * self.blocks.block_size
            assert len(table.chain) * self.blocks.block_size <= sequence.computed
        assert self._needed.keys() <= set(self.waiting), "what does not wait needs blocks"
