"""What a step did, in numbers."""

from __future__ import annotations

from app.core.events import StepStats
from app.engine.batch import Batch
from app.engine.decoding import Tally


def step_stats(batch: Batch, tally: Tally, running: int, waiting: int) -> StepStats:
    """Of a step that is committed; so many sequences run and wait behind it."""
    laps, portions = batch.laps, batch.portions.values()
    return StepStats(
        plan_seconds=laps.plan,
        launch_seconds=laps.launch,
        mask_seconds=laps.mask,
        sample_seconds=laps.sample,
        commit_seconds=laps.commit,
        idle_seconds=laps.idle,
        prompt_tokens=sum([each.num_prompt for each in portions]),
        cached_tokens=batch.cached_tokens,
        sampled_tokens=sum([each.num_taken for each in portions]),
        leapt_tokens=tally.leapt,
        drafted_tokens=sum([each.num_accepted for each in portions]),
        proposed_tokens=sum([n - 1 for each in portions if (n := each.num_usable) > 1]),
        passes_saved=sum([n - 1 for each in portions if (n := each.num_taken) > 1]),
        skipped_tokens=tally.skipped,
        batch_tokens=sum([len(each.tokens) for each in portions]),
        void_tokens=sum([len(each.tokens) for each in portions if each.void]),
        scored_tokens=sum([len(p.tokens) for p in portions if p.scoring]),
        running=running,
        waiting=waiting,
        preemptions=batch.preemptions,
        prefix_queries=batch.prefix_queries,
        prefix_hits=batch.prefix_hits,
        budget_closed=tally.budget_closed,
        drawn_again=tally.drawn_again,
        masks_put_off=tally.put_off,
        masks_given_up=tally.given_up,
    )
