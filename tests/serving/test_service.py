from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest

from app.answer.pieces import Content, End, Piece
from app.answer.prompt import TextPrompt
from app.core.constraint import ConstraintSpec
from app.core.errors import (
    BudgetTooSmall,
    ConstraintTooComplex,
    EngineDied,
    InvalidRequest,
    LeapjsonError,
    PromptTooLong,
    QueueFull,
    ShutDown,
    UnsupportedSchema,
)
from app.core.request import EngineRequest, SamplingParams
from app.core.specs import Regex
from tests.serving.fakes import Bench, FakeConstraint, FakeEngine, ask, text_of, until


async def test_an_answer_is_the_engines_bytes_as_text() -> None:
    async with Bench(FakeEngine(lambda r: [b"gr\xc3", b"\xbc\xc3\x9f", b"e"])).running() as bench:
        assert await bench.texts(ask()) == ["grüße"]
        (stats,) = bench.observer.requests
        assert (stats.status, stats.finish_reason) == (200, "stop")
        assert (stats.usage.completion_tokens, stats.usage.leapt_tokens) == (3, 2)
        assert len(stats.inter_token_seconds) == 2
        assert stats.time_to_first_token is not None
        assert 0 <= stats.queue_seconds <= stats.time_to_first_token <= stats.e2e_seconds
        assert bench.admission.live == 0


async def test_an_opening_is_told_while_its_step_still_runs() -> None:
    async with Bench(FakeEngine(lambda request: [b"a", b"b"])).running() as bench:
        bench.engine.gate.clear()
        bench.engine.opened.append("r-0")
        generation = await bench.open(ask("r"))
        batches = aiter(generation.batches())
        assert [text_of(chunk) for chunk in await anext(batches)] == ["a"]
        bench.engine.gate.set()
        assert [text_of(chunk) async for batch in batches for chunk in batch] == ["b"]
        generation.close()


async def test_choice_i_draws_from_seed_plus_i() -> None:
    async with Bench().running() as bench:
        await bench.texts(ask("a", n=3, seed=2**64 - 1))
        await bench.texts(ask("b"))
        assert [r.seed for r in bench.engine.added] == [2**64 - 1, 0, 1, 7]
        assert len({r.request_id for r in bench.engine.added}) == 4


async def test_an_answer_may_have_what_the_context_leaves() -> None:
    async with Bench(context=100, default_max_tokens=None).running() as bench:
        await bench.texts(ask("a"))
        await bench.texts(ask("b", max_tokens=98))
        assert [r.max_tokens for r in bench.engine.added] == [98, 98]
        await bench.texts(ask("c", max_tokens=99))
        assert bench.engine.added[-1].max_tokens == 98
        long = [{"role": "user", "content": "x" * 100}]
        with pytest.raises(
            PromptTooLong, match=r"length is 100 tokens.*requested 100 tokens in the prompt"
        ):
            await bench.texts(ask("d", messages=long))
        assert bench.admission.live == 0


async def test_more_than_the_context_leaves_may_be_refused() -> None:
    async with Bench(context=100, clip_max_tokens=False).running() as bench:
        await bench.texts(ask("a", max_tokens=98))
        with pytest.raises(PromptTooLong, match=r"101 tokens .2 in the prompt, 99 in max_tokens"):
            await bench.texts(ask("b", max_tokens=99))


async def test_a_default_for_max_tokens_gives_way_to_the_context() -> None:
    async with Bench(context=100, default_max_tokens=50).running() as bench:
        await bench.texts(ask("a"))
        await bench.texts(ask("b", messages=[{"role": "user", "content": "x" * 90}]))
        assert [r.max_tokens for r in bench.engine.added] == [50, 10]


async def test_the_engine_lives_on_one_thread_that_is_not_the_loops() -> None:
    async with Bench().running() as bench:
        for name in "abc":
            await bench.texts(ask(name))
        (thread,) = bench.engine.threads
        assert thread != threading.get_ident()


async def test_a_long_prompt_is_tokenized_off_the_event_loop() -> None:
    async with Bench(context=10**6).running() as bench:
        await bench.texts(ask("a"))
        await bench.texts(ask("b", messages=[{"role": "user", "content": "x" * 5000}]))
        short, long = bench.tokenizer.threads
        assert short == threading.get_ident() != long


async def test_what_the_engine_refuses_is_raised_before_any_answer() -> None:
    async with Bench().running() as bench:
        bench.engine.refusal = lambda r: BudgetTooSmall(max_tokens=1, needed=9)
        with pytest.raises(BudgetTooSmall):
            await bench.texts(ask())
        assert bench.admission.live == 0


async def test_the_engine_takes_all_choices_or_none() -> None:
    async with Bench().running() as bench:
        bench.engine.refusal = lambda r: InvalidRequest("no") if r.request_id == "r-2" else None
        with pytest.raises(InvalidRequest):
            await bench.texts(ask(n=3))
        assert bench.engine.aborted == ["r-0", "r-1"]
        bench.engine.refusal = lambda r: None
        assert await bench.texts(ask("s")) == ["Hello"]


async def test_a_bug_in_adding_one_request_leaves_the_others() -> None:
    async with Bench().running() as bench:
        bench.engine.refusal = lambda r: ZeroDivisionError() if r.request_id == "bad-0" else None
        with pytest.raises(LeapjsonError, match="internal error"):
            await bench.texts(ask("bad"))
        assert await bench.texts(ask("good")) == ["Hello"]


async def test_a_bad_schema_is_refused_and_its_room_given_back() -> None:
    async with Bench().running() as bench:
        bench.compile_error = UnsupportedSchema("format", "/a")
        with pytest.raises(UnsupportedSchema):
            await bench.texts(ask(content=Regex("x")))
        assert bench.admission.live == 0


async def test_a_request_that_waits_for_its_schema_holds_nobody_up() -> None:
    ready = asyncio.Event()

    async def compile(spec: ConstraintSpec, *_: object) -> FakeConstraint:
        await ready.wait()
        return FakeConstraint()

    async with Bench(compile=compile).running() as bench:
        slow = asyncio.create_task(bench.texts(ask("slow", content=Regex("x"))))
        assert await bench.texts(ask("quick")) == ["Hello"]
        assert bench.constraints.waiting == 1
        ready.set()
        assert await slow == ["Hello"]
        assert isinstance(bench.engine.added[-1].constraint, FakeConstraint)


async def test_leaving_while_the_schema_compiles_leaves_nothing_behind() -> None:
    async def compile(spec: ConstraintSpec, *_: object) -> FakeConstraint:
        await asyncio.sleep(3600)
        return FakeConstraint()

    async with Bench(compile=compile).running() as bench:
        slow = asyncio.create_task(bench.texts(ask(content=Regex("x"))))
        await until(lambda: bench.constraints.waiting)
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        assert bench.admission.live == 0
        assert bench.engine.added == []


async def test_closing_a_generation_aborts_its_choices() -> None:
    async with Bench().running() as bench:
        bench.engine.gate.clear()
        generation = await bench.open(ask(n=2))
        generation.close()
        await until(lambda: bench.engine.aborted == ["r-0", "r-1"])
        assert bench.admission.live == 0
        assert [s.status for s in bench.observer.requests] == [499]


async def test_a_slow_reader_gets_everything_at_once_and_keeps_no_room() -> None:
    async with Bench(FakeEngine(lambda r: [b"a", b"b", b"c"])).running() as bench:
        generation = await bench.open(ask())
        await until(lambda: bench.admission.live == 0)
        batches = [batch async for batch in generation.batches()]
        assert [[text_of(delta) for delta in batch] for batch in batches] == [["abc"]]
        ((_, pieces),) = batches[0]
        assert [piece for piece in pieces if isinstance(piece, End)] == pieces[-1:]
        generation.close()
        assert [s.status for s in bench.observer.requests] == [200]


async def test_queued_chunks_are_one_delta_for_each_choice_with_its_tokens_in_order() -> None:
    def script(request: EngineRequest) -> list[bytes]:
        return [request.request_id[-1:].encode() + b"%d" % number for number in range(5)]

    async with Bench(FakeEngine(script)).running() as bench:
        generation = await bench.open(ask(n=2))
        await until(lambda: bench.admission.live == 0)
        (batch,) = [batch async for batch in generation.batches()]
        generation.close()
    assert [(added[0], text_of(added)) for added in batch] == [
        (0, "0001020304"), (1, "1011121314"),
    ]  # fmt: skip
    for _, (content, *_) in batch:
        assert isinstance(content, Content)
        assert b"".join(token.data for token in content.tokens).decode() == content.text


async def test_queued_chunks_come_in_bounded_batches_between_which_others_run() -> None:
    pieces = [b"%d " % number for number in range(100)]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Bench(FakeEngine(lambda r: pieces)).running() as bench:
        generation = await bench.open(ask())
        await until(lambda: bench.admission.live == 0)
        other = asyncio.create_task(others())
        read = [(turns, batch) async for batch in generation.batches()]
        other.cancel()
        generation.close()
    deltas = [delta for _, batch in read for delta in batch]
    assert "".join(map(text_of, deltas)).encode() == b"".join(pieces)
    assert all(len(text_of(delta).split()) <= 32 for delta in deltas)
    assert len(read) == 4
    seen = [turn for turn, _ in read]
    assert all(before < after for before, after in pairwise(seen))


async def test_a_reader_in_no_hurry_gets_everything_in_larger_batches() -> None:
    pieces = [b"%d " % number for number in range(70)]
    async with Bench(FakeEngine(lambda r: list(pieces))).running() as bench:
        bench.engine.gate.clear()
        generation = await bench.open(ask())

        async def read() -> list[Sequence[tuple[int, list[Piece]]]]:
            return [batch async for batch in generation.batches(at_least=32)]

        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        bench.engine.gate.set()
        *batches, last = await reader
        generation.close()
    texts = ["".join(map(text_of, batch)) for batch in (*batches, last)]
    assert all(len(text.split()) >= 32 for text in texts[:-1])
    assert "".join(texts).encode() == b"".join(pieces)


async def test_the_death_of_the_engine_fails_every_request_and_all_that_follow() -> None:
    async with Bench().running() as bench:
        bench.engine.gate.clear()
        waiting = [asyncio.create_task(bench.texts(ask(name))) for name in "abc"]
        await until(lambda: len(bench.engine.added) == 3)
        bench.engine.crash = RuntimeError("a kernel panicked")
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(result, EngineDied) for result in results)
        assert bench.service.fault == "the engine died"
        with pytest.raises(EngineDied):
            await bench.texts(ask("late"))
        assert [s.status for s in bench.observer.requests[:3]] == [503] * 3
        assert bench.admission.live == 0


async def test_an_answer_the_engine_gives_up_fails_alone() -> None:
    def script(request: EngineRequest) -> list[bytes]:
        return [b"x"]

    async with Bench(FakeEngine(script)).running() as bench:
        bench.engine.finish_with = "error"
        with pytest.raises(LeapjsonError, match="engine abandoned this answer"):
            await bench.texts(ask("a"))
        bench.engine.finish_with = None
        assert await bench.texts(ask("b")) == ["x"]


async def test_an_answer_whose_constraint_grows_too_complex_says_so() -> None:
    async with Bench(FakeEngine(lambda request: [b"x"])).running() as bench:
        bench.engine.finish_with = "error"
        bench.engine.error = ConstraintTooComplex("steps")
        with pytest.raises(ConstraintTooComplex):
            await bench.texts(ask("a"))


async def test_a_full_queue_is_refused_and_counted() -> None:
    async with Bench(capacity=2).running() as bench:
        bench.engine.gate.clear()
        running = asyncio.create_task(bench.texts(ask("a", n=2)))
        await until(lambda: bench.engine.added)
        with pytest.raises(QueueFull):
            await bench.texts(ask("b"))
        assert bench.observer.rejections == ["queue_full"]
        bench.engine.gate.set()
        assert await running == ["Hello"] * 2
        assert await bench.texts(ask("c")) == ["Hello"]


async def test_queue_time_ends_when_a_step_takes_the_request_up() -> None:
    async with Bench(FakeEngine(slots=1)).running() as bench:
        bench.engine.gate.clear()
        running = asyncio.create_task(bench.texts(ask("a")))
        await until(lambda: bench.engine.added)
        queued = asyncio.create_task(bench.texts(ask("b")))
        await until(lambda: len(bench.engine.added) == 2)
        both_added = time.perf_counter()
        await asyncio.sleep(0.01)
        opened = time.perf_counter()
        bench.engine.gate.set()
        await asyncio.gather(running, queued)
        _, second = bench.observer.requests
        assert second.time_to_first_token is not None
        assert opened - both_added <= second.queue_seconds <= second.time_to_first_token


async def test_a_bias_for_a_token_that_is_not_there_is_refused() -> None:
    async with Bench().running() as bench:
        with pytest.raises(InvalidRequest, match="the token id 300"):
            await bench.texts(ask(sampling=SamplingParams(logit_bias={300: 1.0})))


async def test_stopping_the_worker_answers_whoever_still_waits() -> None:
    bench = Bench()
    async with bench.running():
        bench.engine.gate.clear()
        waiting = asyncio.create_task(bench.texts(ask()))
        await until(lambda: bench.engine.added)
        await bench.worker.stop()
        with pytest.raises(ShutDown, match="server shut down"):
            await waiting


async def test_huge_prompts_wait_for_one_another_and_others_do_not() -> None:
    async with Bench().running() as bench:
        gate, encode = threading.Event(), bench.tokenizer.encode_prompt
        running: list[int] = []

        def slow(text: str, *, add_special_tokens: bool = False) -> Sequence[int]:
            if len(text) >= 200_000:
                running.append(len(text))
                assert gate.wait(timeout=300)
            return encode(text, add_special_tokens=add_special_tokens)

        bench.tokenizer.encode_prompt = slow  # type: ignore[method-assign]

        async def tokens_of(length: int) -> Sequence[int]:
            return await bench.service.tokenize(TextPrompt("x" * length), bench.admission.enter())

        huge = [asyncio.create_task(tokens_of(200_000)) for _ in range(40)]
        await until(lambda: bool(running))
        tokens = await asyncio.wait_for(tokens_of(5000), 300)
        assert len(tokens) > 4999
        assert len(running) == 1
        gate.set()
        assert len(await asyncio.gather(*huge)) == 40


@pytest.mark.parametrize("length", [5_000, 200_000])
async def test_a_tenants_many_long_prompts_are_not_all_before_anothers(length: int) -> None:
    """Also if its clients leave: what a thread has begun keeps its turn."""
    async with Bench().running() as bench:
        gate, encode = threading.Event(), bench.tokenizer.encode_prompt
        begun: list[str] = []

        def slow(text: str, *, add_special_tokens: bool = False) -> Sequence[int]:
            begun.append(text[0])
            assert gate.wait(timeout=300)
            return encode(text, add_special_tokens=add_special_tokens)

        bench.tokenizer.encode_prompt = slow  # type: ignore[method-assign]

        def tokens_for(tenant: str) -> asyncio.Task[Sequence[int]]:
            prompt, ticket = TextPrompt(tenant * length), bench.admission.enter(tenant)
            return asyncio.create_task(bench.service.tokenize(prompt, ticket))

        left = [tokens_for("a") for _ in range(40)]
        await until(lambda: bool(begun))
        for _ in range(20):  # each time, those that run would make room for more
            left.pop(0).cancel()
            await asyncio.sleep(0.001)
        other = tokens_for("b")
        await asyncio.sleep(0.01)
        at_once = len(begun)
        gate.set()
        assert len(await other) > length
        await asyncio.gather(*left)
        assert at_once <= 4
        assert begun.index("b") <= 2 * at_once
