"""Which sequences the scheduler runs, and when: plans alone, without a model or draws."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import pytest

from app.core.cache import StateSlots, window_blocks
from app.core.constraint import ConstraintState
from app.core.events import AnswerToken
from app.core.images import PromptImages
from app.core.request import EngineRequest, ServiceTier
from app.core.step import Span
from app.engine.batch import Batch
from app.engine.budget import Budget
from app.engine.config import EngineConfig
from app.engine.draft import Draft, Source
from app.engine.fair_queue import MOST_BEFORE
from app.engine.scheduler import Scheduler
from app.engine.sequence import Sequence
from app.kv.manager import BlockManager
from app.kv.prefix import Parent, Prefix, PrefixIndex
from tests.fakes import Group
from tests.integrity import check_scheduler

BLOCK = 4


class Bench:
    """A scheduler whose steps are committed as planned, without draws."""

    def __init__(
        self,
        *,
        blocks: int = 100,
        max_running: int = 4,
        prefill_tokens: int = 64,
        batch_tokens: int = 512,
        windows: Seq[Group] = (),
        states: StateSlots | None = None,
    ) -> None:
        """``windows``: cache groups beside the one of ``blocks`` blocks."""
        config = EngineConfig(
            max_prefill_tokens=prefill_tokens,
            max_running=max_running,
            max_batch_tokens=batch_tokens,
        )
        groups = [Group(blocks), *windows]
        manager = BlockManager(groups, BLOCK, step_tokens=batch_tokens, states=states)
        self.scheduler = Scheduler(config, manager)
        self.sequences: dict[str, Sequence] = {}
        self.spans: Seq[Span] = ()
        """Spans of the last step."""

    def add(
        self,
        name: str,
        tokens: Seq[int],
        tenant: str = "",
        *,
        max_tokens: int = 10,
        state: ConstraintState | None = None,
        images: PromptImages | None = None,
        scope: str = "",
        tier: ServiceTier = ServiceTier.DEFAULT,
    ) -> None:
        request = EngineRequest(
            name, tuple(tokens), max_tokens, tenant=tenant, images=images, scope=scope, tier=tier
        )
        sequence = Sequence(request, state, Budget(max_tokens))
        self.sequences[name] = sequence
        self.scheduler.add(sequence)

    def step(self, grow: int = 0) -> list[str]:
        """Run a step; return new running names. Answers past their prompt get ``grow`` tokens."""
        before = set(self.running)
        batch = self.scheduler.survey(None)
        assert batch is not None
        self.scheduler.schedule(batch)
        self.spans = self.scheduler.plan(batch, None)
        for portion in batch.portions.values():
            if portion.draws and grow:
                for _ in range(grow):
                    portion.sequence.append(AnswerToken(7, b"7", "sampled"))
            self.scheduler.commit(portion, portion.end)
        check_scheduler(self.scheduler)
        return [name for name in self.running if name not in before]

    @property
    def running(self) -> list[str]:
        return [sequence.request.request_id for sequence in self.scheduler.running]

    def end(self, name: str) -> None:
        self.scheduler.remove(self.sequences.pop(name))
        check_scheduler(self.scheduler)


def own(number: int, length: int = 3) -> list[int]:
    """A prompt without a common prefix with any other."""
    return [1000 + number] * length


def test_one_request_of_a_tenant_is_scheduled_before_anothers_hundreds() -> None:
    bench = Bench(max_running=1)
    for number in range(500):
        bench.add(f"a{number}", own(number), "a")
    assert bench.step() == ["a0"]
    bench.add("b", own(500), "b")
    assert bench.step() == []
    bench.end("a0")
    assert bench.step() == ["b"]
    bench.end("b")
    assert bench.step() == ["a1"]


def test_tenants_share_the_places_that_get_free_however_many_requests_they_have() -> None:
    bench = Bench(max_running=4)
    for number in range(40):
        bench.add(f"a{number}", own(number), "a")
    for number in range(4):
        bench.add(f"b{number}", own(100 + number), "b")
    assert sorted(bench.step()) == ["a0", "a1", "b0", "b1"]


def test_long_answers_count_as_well_as_long_prompts() -> None:
    bench = Bench(max_running=2)
    for number in range(4):
        bench.add(f"a{number}", own(number), "a")
        bench.add(f"b{number}", own(100 + number), "b")
    assert bench.step() == ["a0", "b0"]
    for _ in range(3):
        bench.sequences["a0"].append(AnswerToken(7, b"7", "sampled"))
        assert bench.step() == []
    bench.end("a0")
    assert bench.step() == ["b1"]


def test_a_request_that_waits_for_a_prefix_lets_others_pass() -> None:
    shared = [5] * 80
    bench = Bench(max_running=8, prefill_tokens=100)
    bench.add("first", [*shared, 1])
    bench.add("second", [*shared, 2])
    bench.add("third", own(1))
    assert bench.step() == ["first", "third"]
    assert bench.step() == ["second"]
    assert bench.sequences["second"].cached_tokens == 80


def test_a_prefix_of_another_scope_is_not_waited_for() -> None:
    shared = [5] * 80
    bench = Bench(max_running=8, prefill_tokens=200)
    bench.add("first", [*shared, 1], scope="a")
    bench.add("second", [*shared, 2], scope="b")
    assert bench.step() == ["first", "second"]
    assert bench.sequences["second"].cached_tokens == 0


def test_a_prefix_that_very_many_wait_for_does_not_hold_another_tenant_up() -> None:
    shared = [5] * 80
    bench = Bench(blocks=400, max_running=64, prefill_tokens=100)
    for number in range(50):
        bench.add(f"a{number}", [*shared, number], "a")
    bench.add("b", own(1), "b")
    assert bench.step() == ["a0", "b"]
    assert len(bench.step()) == 49


def test_what_waits_for_blocks_is_not_passed_over() -> None:
    bench = Bench(blocks=10, max_running=8)
    bench.add("runs", own(0, 20))
    assert bench.step() == ["runs"]
    bench.add("large", own(1, 30), "a")
    bench.add("small", own(2, 3), "a")
    assert bench.step() == []
    bench.end("runs")
    assert bench.step() == ["large", "small"]


def test_what_waits_for_blocks_is_not_matched_again_at_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = [5] * 200
    bench = Bench(blocks=100, max_running=8, prefill_tokens=1000)
    bench.add("before", [*shared, 1])
    bench.step()
    bench.end("before")
    bench.add("runs", own(1, 180))
    bench.step()
    lookups = 0
    find = PrefixIndex.find

    def counted(index: PrefixIndex, parent: Parent, tokens: Seq[int]) -> Prefix | None:
        nonlocal lookups
        lookups += 1
        return find(index, parent, tokens)

    monkeypatch.setattr(PrefixIndex, "find", counted)
    bench.add("large", [*shared, *own(2, 40)])
    for _ in range(20):
        assert bench.step() == []
    assert lookups <= 51  # 50 blocks are found, and one is not
    bench.end("runs")
    assert bench.step() == ["large"]
    assert bench.sequences["large"].cached_tokens == 200


def test_a_prefix_that_is_evicted_while_it_is_waited_for_is_computed_again() -> None:
    shared = [5] * 200
    bench = Bench(blocks=100, max_running=8, prefill_tokens=1000)
    bench.add("before", [*shared, 1])
    bench.step()
    bench.end("before")
    bench.add("runs", own(1, 180), max_tokens=100)
    bench.step()
    bench.add("large", [*shared, *own(2, 40)])
    while bench.sequences["runs"].blocks.covered < 60:
        assert bench.step(grow=1) == []
    bench.end("runs")
    assert bench.step() == ["large"]
    assert bench.sequences["large"].cached_tokens == 40 * BLOCK


def test_a_preempted_request_is_scheduled_before_all_others() -> None:
    bench = Bench(blocks=8, max_running=2)
    bench.add("a0", own(0, 15), "a")
    bench.add("a1", own(1, 7), "a")
    assert bench.step() == ["a0", "a1"]
    bench.add("b0", own(2), "b")
    while "a1" in bench.running:
        assert bench.step(grow=1) == []
    assert bench.running == ["a0"]
    assert bench.step() == []
    bench.end("a0")
    assert bench.step() == ["a1", "b0"]


def test_a_preempted_prompt_is_not_charged_twice() -> None:
    bench = Bench(blocks=8, max_running=2)
    bench.add("b0", own(9, 12), "b")
    bench.add("a0", own(0, 7), "a")
    assert bench.step() == ["b0", "a0"]
    bench.add("a1", own(1), "a")
    bench.add("b1", own(2), "b")
    assert bench.scheduler._preempt(Batch()) is bench.sequences["a0"]  # as if no block were free
    assert bench.step() == ["a0"]
    bench.end("b0")
    assert bench.step() == ["a1"]  # a has been served 7 tokens, b 12


def test_prompts_longer_than_a_window_run_with_the_blocks_of_the_window() -> None:
    window = Group(2 * (window_blocks(16, BLOCK) + 40 // BLOCK), 16)
    bench = Bench(blocks=200, batch_tokens=40, prefill_tokens=40, windows=[window])
    bench.add("a", own(0, 300))
    bench.add("b", own(1, 300))
    bench.add("c", own(2, 5))
    assert bench.step() == ["a"]
    while bench.sequences["a"].gap > 1:
        bench.step(grow=1)
    assert bench.running == ["a", "b"]  # no block is free: c waits for one
    while bench.sequences["b"].gap > 1:
        bench.step(grow=1)
    bench.step(grow=1)
    assert bench.running == ["a", "b", "c"]
    held = [len(sequence.blocks.columns[1].held) for sequence in bench.scheduler.running]
    assert max(held) <= window_blocks(16, BLOCK) + 1
    assert [sequence.blocks.columns[0].first for sequence in bench.scheduler.running] == [0, 0, 0]


def test_the_oldest_sequence_takes_blocks_of_a_window_from_the_newest() -> None:
    window = Group(window_blocks(8, BLOCK) + 20 // BLOCK, 8)
    bench = Bench(blocks=200, batch_tokens=20, prefill_tokens=20, windows=[window])
    bench.add("a", own(0, 3), max_tokens=1000)
    bench.add("b", own(1, 3), max_tokens=1000)
    assert bench.step() == ["a", "b"]
    alone = 0
    for _ in range(300):
        computed = bench.sequences["a"].computed
        bench.step(grow=1)
        assert bench.sequences["a"].computed == computed + 1
        alone += bench.running == ["a"]
    assert 0 < alone < 300


BATCH, FLEX, DEFAULT, PRIORITY = ServiceTier


def test_classes_are_scheduled_from_the_highest_to_the_lowest() -> None:
    bench = Bench(max_running=1)
    for number, tier in enumerate(ServiceTier):
        bench.add(tier.name, own(number), tier=tier)
        bench.add(f"{tier.name} again", own(10 + number), tier=tier)
    order = []
    while bench.sequences:
        order += bench.step()
        bench.end(order[-1])
    assert order == [
        name for tier in reversed(ServiceTier) for name in (tier.name, f"{tier.name} again")
    ]


@pytest.mark.parametrize("tier", [BATCH, FLEX, DEFAULT])
def test_a_higher_class_takes_the_slot_of_the_last_one_of_a_lower(tier: ServiceTier) -> None:
    bench = Bench(max_running=3)
    for number in range(5):
        bench.add(f"low{number}", own(number), tier=tier)
    bench.step()
    bench.add("high", own(100), tier=ServiceTier(tier + 1))
    assert bench.step() == ["high"]
    assert bench.running == ["high", "low0", "low1"]
    bench.end("high")
    assert bench.step() == ["low2"]  # before sequences that never ran


def test_the_same_class_takes_no_slot() -> None:
    bench = Bench(max_running=1)
    bench.add("first", own(0))
    bench.step()
    bench.add("second", own(1))
    assert bench.step() == []
    assert bench.running == ["first"]


def test_lower_classes_give_their_blocks_to_a_higher_one() -> None:
    bench = Bench(blocks=12, max_running=8)
    for number in range(3):
        bench.add(f"low{number}", own(number, 3 * BLOCK), tier=BATCH)
    bench.step()
    bench.step()
    assert len(bench.running) == 3
    bench.add("high", own(100, 5 * BLOCK))
    assert bench.step() == ["high"]
    assert bench.running == ["high", "low0"]


def test_lower_classes_pause_while_prompts_of_higher_ones_are_computed() -> None:
    bench = Bench(prefill_tokens=8, batch_tokens=16)
    bench.add("low", own(0), tier=BATCH)
    bench.step(grow=1)
    bench.add("high", own(1, 40))
    computed = []
    while bench.sequences["high"].computed < 39:
        bench.step(grow=1)
        computed.append([len(span.tokens) for span in bench.spans])
    # As on an idle engine, the prompt fills each step.
    assert computed == [[16], [16], [8]]
    bench.step(grow=1)
    assert len(bench.spans) == 2


def test_no_prompt_of_a_lower_class_fills_a_step_that_computes_one_of_a_higher() -> None:
    bench = Bench(prefill_tokens=8, batch_tokens=64, max_running=8)
    for number in range(4):
        bench.add(f"low{number}", own(number, 16), tier=BATCH)
    bench.add("high", own(100, 16))
    assert bench.step(grow=1) == ["high"]
    assert [len(span.tokens) for span in bench.spans] == [16]
    assert bench.step(grow=1) == ["low0"]  # a slot is free, and no prompt of a higher class waits


def test_a_prefix_of_a_lower_class_is_not_waited_for() -> None:
    bench = Bench(prefill_tokens=8, batch_tokens=16)
    prompt = own(0, 10 * BLOCK)
    bench.add("low", prompt, tier=BATCH)
    bench.step()
    bench.add("high", prompt)
    assert bench.step() == ["high"]


def test_answers_that_pause_take_part_in_a_step_now_and_then() -> None:
    bench = Bench(max_running=4)
    bench.add("low", own(0), tier=BATCH)
    bench.step(grow=1)
    low, paused = bench.sequences["low"], []
    for number in range(60):  # each step has a prompt of the default class
        before = low.computed
        bench.add(f"high{number}", own(1 + number))
        bench.step(grow=1)
        paused.append(low.computed == before)
        bench.end(f"high{number}")
    assert paused.count(False) == 60 // 17
    assert all(paused[:16])


def test_no_class_starves_and_an_overdue_request_is_not_preempted() -> None:
    bench = Bench(max_running=1)
    bench.add("low", own(0), tier=BATCH)
    order = []
    for number in range(3 * MOST_BEFORE):
        bench.add(f"high{number}", own(1 + number))
        order += bench.step()
        if order[-1] == "low":
            break
        bench.end(order[-1])
    assert len(order) == MOST_BEFORE + 1
    bench.add("high", own(500))
    assert bench.step() == []
    assert bench.running == ["low"]
    bench.end("low")
    assert bench.step()[0].startswith("high")


def test_an_overdue_class_without_a_slot_does_not_keep_a_higher_one_from_taking_one() -> None:
    bench = Bench(max_running=1)
    bench.add("flex", own(0), tier=FLEX)
    bench.step()
    bench.add("low", own(1), tier=BATCH)
    for number in range(MOST_BEFORE):
        bench.end("flex")
        bench.add("flex", own(2 + number), tier=FLEX)
        assert bench.step() == ["flex"]
    bench.add("urgent", own(500))
    assert bench.step() == ["urgent"]
    bench.end("urgent")
    bench.add("more urgent", own(501))
    assert bench.step() == ["low"], "the next free slot is that of the overdue class"


def test_tenants_take_turns_within_a_class() -> None:
    bench = Bench(max_running=4)
    for number in range(8):
        bench.add(f"a{number}", own(number), "a", tier=BATCH)
    for number in range(2):
        bench.add(f"b{number}", own(100 + number), "b", tier=BATCH)
    assert sorted(bench.step()) == ["a0", "a1", "b0", "b1"]


@pytest.mark.parametrize("number", [3, 15, 40])
def test_lower_answers_take_turns_at_the_spare_tokens_beside_higher_ones(number: int) -> None:
    bench = Bench(max_running=number + 1, blocks=600)
    names = [f"low{index}" for index in range(number)]
    for index, name in enumerate(names):
        bench.add(name, own(index), tier=BATCH, max_tokens=200)
    while not all(name in bench.sequences and bench.sequences[name].computed for name in names):
        bench.step(grow=1)
    bench.add("high", own(1000), max_tokens=200)
    bench.step(grow=1)
    before = {name: bench.sequences[name].computed for name in names}
    high = bench.sequences["high"].computed
    steps = 30
    for _ in range(steps):
        bench.step(grow=1)
        assert len(bench.spans) <= 16
    assert bench.sequences["high"].computed == high + steps
    tokens = [bench.sequences[name].computed - before[name] for name in names]
    assert max(tokens) - min(tokens) <= 1
    assert sum(tokens) == steps * min(number, 15)


@pytest.mark.parametrize(("tier", "tokens"), [(BATCH, 2), (FLEX, 2), (DEFAULT, 16)])
def test_prompts_of_lower_classes_alone_are_computed_in_short_steps(
    tier: ServiceTier, tokens: int
) -> None:
    bench = Bench(prefill_tokens=8, batch_tokens=16)
    bench.add("prompt", own(0, 40), tier=tier)
    for _ in range(2):
        bench.step()
        assert [len(span.tokens) for span in bench.spans] == [tokens]


def test_beside_a_higher_answer_prompts_and_drafts_of_lower_ones_are_spare_tokens() -> None:
    bench = Bench(max_running=8, blocks=600, prefill_tokens=128)
    for number in range(4):
        bench.add(f"low{number}", own(number), tier=BATCH, max_tokens=200)
    for _ in range(4):
        bench.step(grow=1)
    bench.add("high", own(100), max_tokens=200)
    bench.step(grow=1)
    bench.add("prompt", own(200, 300), tier=BATCH)
    started = set()
    for _ in range(12):
        for number in range(4):
            draft = tuple(range(7))
            bench.sequences[f"low{number}"].draft = Draft(draft, (Source.COUNTED,) * 7)
        bench.step(grow=1)
        assert sum(len(span.tokens) for span in bench.spans) <= 17
        started |= {len(span.tokens) for span in bench.spans}
    assert bench.sequences["prompt"].computed > 12
    assert 8 in started, "drafts are computed, two answers at a time"
