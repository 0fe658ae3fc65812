"""The engine against plain decoding, one sequence at a time (law 3), and its other promises."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from app.core.constraint import Mask
from app.core.errors import BudgetTooSmall, InvalidRequest, PromptTooLong
from app.core.events import TokenChunk
from app.core.request import SamplingParams
from app.engine import Engine, EngineConfig
from app.engine.decoding import Decoder
from app.engine.leap import Leaper
from app.engine.sequence import Sequence
from tests.engine.harness import (
    GREEDY,
    LANGUAGES,
    TOKENIZER,
    VOCABULARY,
    Recorder,
    answer_of,
    answers_of,
    constraint,
    drain,
    make_engine,
    random_config,
    random_request,
    request,
    templates,
)
from tests.engine.naive import naive_answer
from tests.fakes import FiniteConstraint, FiniteState, ScriptedModel, ScriptedRunner

HOT = SamplingParams(temperature=1.0)


@pytest.mark.parametrize("seed", range(60))
def test_any_batching_chunking_sharing_and_preemption_gives_the_tokens_of_plain_decoding(
    seed: int,
) -> None:
    rng = random.Random(seed)
    model = ScriptedModel(VOCABULARY, eos=rng.choice([0.0, 4.0]))
    requests = [random_request(rng, index) for index in range(rng.randint(1, 8))]
    block_size = rng.choice([1, 2, 4, 16])
    longest = max(len(one.prompt) + one.max_tokens for one in requests)
    spare = rng.choice([0, 1, 5, 100])
    engine = make_engine(
        random_config(rng),
        model=model,
        num_blocks=-(-longest // block_size) + spare,
        block_size=block_size,
    )
    for one, answer in answers_of(engine, requests).items():
        asked = next(each for each in requests if each.request_id == one)
        plain = naive_answer(asked, model, VOCABULARY, TOKENIZER)
        assert (answer.data, answer.finish_reason) == (plain.text, plain.finish_reason)
        if not asked.stop:
            assert answer.tokens == plain.tokens


@pytest.mark.parametrize("seed", range(60))
def test_answers_that_share_blocks_and_drop_tokens_of_them_are_those_of_plain_decoding(
    seed: int,
) -> None:
    """The same request several times, and prompts that go on with what an answer begins with."""
    rng = random.Random(seed)
    model = ScriptedModel(VOCABULARY, by_bytes=rng.random() < 0.7)
    language = constraint(*templates(["x", ""], ["name1", "nabb", "nor", "name2"], ["", "abab1"]))
    prompt = bytes(rng.choices(b"pq", k=rng.randint(1, 4)))
    requests = []
    for index in range(rng.randint(2, 12)):
        start = rng.choice(language.answers)[: rng.randint(0, 9)] if rng.random() < 0.5 else b""
        one = request(f"r{index}", [*prompt, *start], allowed=language, max_tokens=20)
        requests.append(replace(one, sampling=rng.choice([GREEDY, HOT]), seed=rng.randint(0, 1)))
    block_size = rng.choice([1, 2, 3, 4])
    config = replace(random_config(rng), share_prefixes=True)
    blocks = 40 // block_size + rng.choice([0, 2, 50])
    engine = make_engine(config, model=model, num_blocks=blocks, block_size=block_size)
    waiting, tokens, live = list(requests), dict[str, list[int]](), engine._sequences
    while waiting or engine.has_work:
        if waiting and rng.random() < 0.6:
            engine.add(waiting.pop())
        running = dict(live)
        for chunk in engine.step():
            sequence = running[chunk.request_id]
            tokens[chunk.request_id] = sequence.tokens[sequence.answer_start :]
        engine.check_integrity()
    for one in requests:
        assert tokens[one.request_id] == naive_answer(one, model, VOCABULARY, TOKENIZER).tokens


@pytest.mark.parametrize("seed", range(10))
def test_requests_that_arrive_while_others_run_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    model = ScriptedModel(VOCABULARY)
    requests = [random_request(rng, index) for index in range(8)]
    engine = make_engine(model=model, num_blocks=60)
    texts: dict[str, bytes] = {}
    coming = list(requests)
    while coming or engine.has_work:
        if coming and rng.random() < 0.4:
            engine.add(coming.pop())
        for chunk in engine.step():
            texts[chunk.request_id] = texts.get(chunk.request_id, b"") + chunk.data
        engine.check_integrity()
    for one in requests:
        assert texts[one.request_id] == naive_answer(one, model, VOCABULARY, TOKENIZER).text


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_answer_ends_whole_within_every_budget(language: FiniteConstraint) -> None:
    shortest = language.start().shortest_tokens()
    longest = max(map(len, language.answers))
    engine = make_engine(num_blocks=1024)
    for budget in range(max(1, shortest), longest + 2):
        for seed in range(4):
            one = request(allowed=language, max_tokens=budget, sampling=HOT, seed=seed)
            answer = answer_of(engine, one)
            assert answer.data in language.answers
            assert answer.finish_reason == "stop"
            assert len(answer.tokens) <= budget


@pytest.mark.parametrize("language", LANGUAGES)
def test_leaping_gives_the_text_of_decoding_where_the_split_does_not_matter(
    language: FiniteConstraint,
) -> None:
    model = ScriptedModel(VOCABULARY, by_bytes=True)
    for number in range(6):
        one = request(prompt=f"prompt {number}", allowed=language, max_tokens=200)
        leapt = answer_of(make_engine(model=model), one)
        decoded = answer_of(make_engine(EngineConfig(leap=False), model=model), one)
        assert leapt.data == decoded.data
        assert leapt.usage is not None
        assert decoded.usage is not None
        assert leapt.usage.forward_passes <= decoded.usage.forward_passes
        assert decoded.usage.leapt_tokens == 0


@pytest.mark.parametrize("seed", range(20))
def test_drafting_what_was_held_back_gives_the_same_tokens_in_no_more_passes(seed: int) -> None:
    passes = []
    tokens = []
    for draft in (True, False):
        engine = make_engine(EngineConfig(draft_held_back=draft))
        requests = [
            request(f"{i}", allowed=language, sampling=HOT, seed=seed, max_tokens=60)
            for i, language in enumerate(LANGUAGES)
        ]
        answers = answers_of(engine, requests)
        tokens.append({name: answer.tokens for name, answer in answers.items()})
        passes.append(sum(a.usage.forward_passes for a in answers.values() if a.usage))
    assert tokens[0] == tokens[1]
    assert passes[0] <= passes[1]


def test_what_a_longer_token_could_go_on_from_is_held_back_and_drafted() -> None:
    language = constraint(*templates('{"na', ["me", "or", "b"], '": 1', ["2", "1"], "}"))
    drafted = 0
    for seed in range(10):
        one = request(allowed=language, sampling=HOT, seed=seed)
        usage = answer_of(make_engine(), one).usage
        assert usage is not None
        drafted += usage.drafted_tokens
    assert drafted > 0


def test_an_answer_that_is_forced_to_its_end_needs_no_forward_pass() -> None:
    engine = make_engine()
    answer = answer_of(engine, request(allowed=LANGUAGES[4]))
    assert answer.data == b'{"only": "all of this is forced"}'
    assert answer.finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.forward_passes == 0
    assert answer.usage.leapt_tokens == answer.usage.completion_tokens == len(answer.tokens)


def test_a_leapt_answer_is_split_as_the_tokenizer_splits_it() -> None:
    answer = answer_of(make_engine(), request(allowed=LANGUAGES[4]))
    assert answer.tokens == TOKENIZER.encode('{"only": "all of this is forced"}')


def test_the_forced_opening_is_computed_together_with_the_prompt() -> None:
    engine = make_engine()
    engine.add(request(prompt="abc", allowed=constraint('{"name": 1}', '{"name": 2}')))
    chunk = engine.step()[0]
    assert chunk.data.startswith(b'{"name": ')
    assert [token.source for token in chunk.tokens][:2] == ["leapt", "leapt"]
    assert chunk.usage.forward_passes == 1
    assert chunk.finish_reason == "stop"


def test_a_preempted_request_resumes_with_the_same_tokens() -> None:
    model = ScriptedModel(VOCABULARY, eos=-100.0)
    recorder = Recorder()
    requests = [request(f"{i}", f"prompt {i}", max_tokens=30, sampling=HOT) for i in range(4)]
    engine = make_engine(model=model, num_blocks=16, observer=recorder)
    answers = answers_of(engine, requests)
    assert sum(step.preemptions for step in recorder.steps) > 0
    for one in requests:
        plain = naive_answer(one, model, VOCABULARY, TOKENIZER)
        assert answers[one.request_id].tokens == plain.tokens


def test_a_queue_of_a_thousand_requests_drains_with_none_lost() -> None:
    language = constraint("yes", "no", "none")
    engine = make_engine(EngineConfig(max_running=16), num_blocks=64)
    requests = [
        request(f"{i}", f"question {i % 7}?", allowed=language, sampling=HOT, seed=i)
        for i in range(1000)
    ]
    answers = answers_of(engine, requests)
    assert len(answers) == 1000
    assert all(answer.data in language.answers for answer in answers.values())
    assert {answer.finish_reason for answer in answers.values()} == {"stop"}


def test_requests_finish_in_order_of_arrival_when_they_run_one_at_a_time() -> None:
    engine = make_engine(EngineConfig(max_running=1))
    for index in range(5):
        engine.add(request(f"{index}", allowed=LANGUAGES[2]))
    ended = [chunk.request_id for chunk in _chunks(engine) if chunk.finish_reason]
    assert ended == ["0", "1", "2", "3", "4"]


def test_a_long_prompt_does_not_keep_others_from_their_tokens() -> None:
    model = ScriptedModel(VOCABULARY, eos=-100.0)
    config = EngineConfig(max_batch_tokens=16, max_running=4)
    engine = make_engine(config, model=model, num_blocks=400)
    engine.add(request("short", "abc", max_tokens=20))
    engine.step()
    engine.add(request("long", "xyz " * 200, max_tokens=2))
    for _ in range(19):
        assert [chunk.request_id for chunk in engine.step()] == ["short"]
    assert drain(engine)["long"].finish_reason == "length"


def test_prompts_that_begin_alike_are_computed_once() -> None:
    recorder = Recorder()
    engine = make_engine(observer=recorder)
    prompt = "the very same system prompt; "
    requests = [request(f"{i}", f"{prompt}{i}", allowed=LANGUAGES[2]) for i in range(4)]
    answers = answers_of(engine, requests)
    length = len(requests[0].prompt)
    cached = [answer.usage.cached_tokens for answer in answers.values() if answer.usage]
    assert sorted(cached) == [0] + [(length - 1) // 4 * 4] * 3
    assert sum(step.prompt_tokens for step in recorder.steps) == 4 * length - sum(cached)
    assert sum(step.cached_tokens for step in recorder.steps) == sum(cached)
    assert sum(step.prefix_hits for step in recorder.steps) == sum(cached) // 4


def test_abort_frees_the_blocks_at_once_and_tells_the_end() -> None:
    engine = make_engine(model=ScriptedModel(VOCABULARY, eos=-100.0), num_blocks=16)
    engine.add(request("running", "abc"))
    engine.add(request("waiting", "abc" * 10))
    engine.step()
    for name in ("running", "waiting"):
        chunk = engine.abort(name)
        assert chunk is not None
        assert chunk.finish_reason == "abort"
        engine.check_integrity()
    assert not engine.has_work
    assert engine._scheduler.blocks.usage == 0.0
    assert engine.abort("running") is None


@pytest.mark.parametrize("leap", [True, False])
def test_a_stop_string_inside_leapt_text_cuts_the_answer_before_it(leap: bool) -> None:
    one = request(allowed=LANGUAGES[4], stop=(b"this", b"forced"), leap=leap)
    answer = answer_of(make_engine(), one)
    assert answer.data == b'{"only": "all of '
    assert answer.finish_reason == "stop"


def test_chunks_together_are_the_text_before_the_stop_string_and_nothing_of_it() -> None:
    model = ScriptedModel(VOCABULARY)
    stopped = 0
    for seed in range(30):
        one = request(allowed=LANGUAGES[0], sampling=HOT, seed=seed, stop=(b'", "me"', b"baba"))
        answer = answer_of(make_engine(model=model), one)
        whole = naive_answer(replace(one, stop=()), model, VOCABULARY, TOKENIZER).text
        assert answer.data == whole.split(b'", "me"')[0]
        stopped += answer.finish_reason == "stop"
    assert stopped == 30


def test_a_request_that_can_never_fit_is_refused() -> None:
    engine = make_engine(num_blocks=5, block_size=4)
    engine.add(request("fits", [1] * 10, max_tokens=10))
    with pytest.raises(PromptTooLong):
        engine.add(request("longer", [1] * 10, max_tokens=11))
    assert drain(engine).keys() == {"fits"}


def test_a_budget_below_the_shortest_answer_is_refused_and_says_what_is_needed() -> None:
    needed = LANGUAGES[0].start().shortest_tokens()
    with pytest.raises(BudgetTooSmall) as caught:
        make_engine().add(request(allowed=LANGUAGES[0], max_tokens=needed - 1))
    assert caught.value.needed == needed


def test_where_the_tokenizers_split_is_too_long_for_the_budget_the_answer_is_decoded() -> None:
    answer = answer_of(make_engine(), request(allowed=constraint("wxyz1", "wxyz2"), max_tokens=3))
    assert answer.data in (b"wxyz1", b"wxyz2")
    assert answer.usage is not None
    assert answer.usage.leapt_tokens == 0


def test_no_draft_is_computed_that_the_budget_has_no_draw_for() -> None:
    runner = ScriptedRunner(ScriptedModel(VOCABULARY))
    engine = Engine(runner, VOCABULARY, TOKENIZER)
    for budget, computed in ((1, 3), (2, 4)):
        one = request(prompt="abc", allowed=constraint("na", "name"), max_tokens=budget)
        length = len(one.prompt)
        assert answer_of(engine, one).data in (b"na", b"name")
        assert sum(len(span.tokens) for span in runner.plans[-1].spans) == computed - 3 + length
        runner.plans.clear()


def test_a_draft_is_verified_up_to_the_first_token_that_its_mask_excludes() -> None:
    decoder = Decoder(VOCABULARY, Leaper(VOCABULARY, TOKENIZER), EngineConfig())
    language = constraint("ab", "nab", "nac")
    one = request(allowed=language, max_tokens=2)
    sequence = Sequence(one, language.start(), 0)
    short, long, other = (VOCABULARY.ids[piece] for piece in (b"na", b"n", b"c"))
    assert len(decoder.masks(sequence, [])) == 1
    assert len(decoder.masks(sequence, [short])) == 2
    assert len(decoder.masks(sequence, [other])) == 1
    assert len(decoder.masks(sequence, [long])) == 2
    tight = Sequence(replace(one, max_tokens=1), language.start(), 0)
    assert len(decoder.masks(tight, [short])) == 1


def test_truncation_ends_with_length_and_a_valid_beginning() -> None:
    one = request(allowed=LANGUAGES[0], max_tokens=3, on_budget="truncate")
    answer = answer_of(make_engine(), one)
    assert answer.finish_reason == "length"
    assert len(answer.tokens) == 3
    assert any(whole.startswith(answer.data) for whole in LANGUAGES[0].answers)


@pytest.mark.parametrize(
    "bad",
    [
        request(prompt=[]),
        request(max_tokens=0),
        request(stop=(b"",)),
    ],
)
def test_requests_that_make_no_sense_are_refused(bad: object) -> None:
    with pytest.raises(InvalidRequest):
        make_engine().add(bad)  # type: ignore[arg-type]


def test_two_live_requests_cannot_have_the_same_id() -> None:
    engine = make_engine()
    engine.add(request("same"))
    with pytest.raises(InvalidRequest):
        engine.add(request("same"))


class _Broken(FiniteConstraint):
    """Fails after ``calls`` masks."""

    calls = 0

    def start(self) -> FiniteState:
        return _BrokenState(self, b"")


class _BrokenState(FiniteState):
    def mask(self, budget: int | None = None) -> Mask:
        assert isinstance(self._constraint, _Broken)
        self._constraint.calls -= 1
        if self._constraint.calls < 0:
            raise RuntimeError("this constraint is broken")
        return super().mask(budget)

    def copy(self) -> FiniteState:
        return _BrokenState(self._constraint, self._text)


@pytest.mark.parametrize("calls", [0, 1, 3, 4])
def test_a_constraint_that_fails_ends_its_own_answer_and_no_other(calls: int) -> None:
    broken = _Broken(LANGUAGES[1].answers, VOCABULARY)
    broken.calls = calls
    good = [request(f"good {i}", allowed=LANGUAGES[i], sampling=HOT) for i in range(4)]
    model = ScriptedModel(VOCABULARY)
    engine = make_engine(model=model)
    answers = answers_of(engine, [good[0], request("bad", allowed=broken), *good[1:]])
    assert answers["bad"].finish_reason == "error"
    for one in good:
        assert answers[one.request_id].tokens == (
            naive_answer(one, model, VOCABULARY, TOKENIZER).tokens
        )


def test_statistics_of_steps_add_up_to_the_usage_of_answers() -> None:
    recorder = Recorder()
    engine = make_engine(observer=recorder)
    requests = [request(f"{i}", allowed=LANGUAGES[i % 4], seed=i, sampling=HOT) for i in range(12)]
    answers = answers_of(engine, requests)
    usages = [answer.usage for answer in answers.values() if answer.usage]
    entries = [token for answer in answers.values() for token in answer.entries]
    steps = recorder.steps
    assert sum(s.sampled_tokens for s in steps) == sum(t.source == "sampled" for t in entries)
    assert sum(s.leapt_tokens for s in steps) == sum(t.source == "leapt" for t in entries)
    assert sum(s.drafted_tokens for s in steps) == sum(u.drafted_tokens for u in usages)
    assert all(step.batch_tokens <= EngineConfig().max_batch_tokens for step in steps)
    assert all(0.0 <= step.kv_usage <= 1.0 for step in steps)
    assert all(u.leapt_tokens <= u.completion_tokens for u in usages)


def test_an_answer_narrowed_by_its_budget_is_counted_once() -> None:
    language = constraint(*templates(["a", "b"], ["", "a" * 10 + "b"]))
    recorder = Recorder()
    answer = answer_of(make_engine(observer=recorder), request(allowed=language, max_tokens=3))
    assert answer.data in (b"a", b"b")
    assert sum(step.budget_closed for step in recorder.steps) == 1


def test_logprobs_are_those_of_the_draws_and_leapt_tokens_are_certain() -> None:
    asked = replace(GREEDY, logprobs=2)
    answer = answer_of(make_engine(), request(allowed=LANGUAGES[1], sampling=asked))
    for token in answer.entries:
        if token.source == "leapt":
            assert token.logprob == 0.0
        else:
            assert token.logprob <= 0.0
            assert token.top[0].logprob == pytest.approx(token.logprob)


def test_unconstrained_requests_run_beside_constrained_ones() -> None:
    model = ScriptedModel(VOCABULARY, eos=5.0)
    free = [request(f"free {i}", f"{i}", sampling=HOT, seed=i) for i in range(5)]
    bound = [request(f"bound {i}", f"{i}", allowed=LANGUAGES[1], seed=i) for i in range(5)]
    answers = answers_of(make_engine(model=model), [*free, *bound])
    for one in (*free, *bound):
        plain = naive_answer(one, model, VOCABULARY, TOKENIZER)
        assert answers[one.request_id].tokens == plain.tokens
        assert answers[one.request_id].finish_reason == plain.finish_reason
    assert {answers[one.request_id].finish_reason for one in free} <= {"stop", "length"}


def _chunks(engine: Engine) -> list[TokenChunk]:
    chunks: list[TokenChunk] = []
    while engine.has_work:
        chunks += engine.step()
        engine.check_integrity()
    return chunks


def test_a_leap_that_drops_tokens_of_a_shared_block_leaves_it_to_the_other() -> None:
    """Both read the block [p p x n]; then "me" is forced in one answer: [p p x name]."""
    model = ScriptedModel(VOCABULARY, by_bytes=True, eos=-100.0)
    language = constraint("xname1", "xnabb", "xnor", "y")
    leaping = next(
        one
        for first in range(256)
        if naive_answer(
            one := request("leaps", [first, 0], allowed=language), model, VOCABULARY, TOKENIZER
        ).text
        == b"xname1"
    )
    sharing = request("shares", [*leaping.prompt, *b"xnz"], max_tokens=8, sampling=HOT)
    engine = make_engine(model=model)
    engine.add(leaping)
    sequence = engine._sequences["leaps"]
    while sequence.computed < 4:
        engine.step()
        assert engine.has_work
    engine.add(sharing)
    first = {chunk.request_id: chunk for chunk in engine.step()}
    engine.check_integrity()
    assert first["leaps"].finish_reason == "stop"
    assert sequence.tokens == [*leaping.prompt, *TOKENIZER.encode("xname1")]
    assert first["shares"].usage.cached_tokens == 4
    answer = drain(engine)["shares"]
    plain = naive_answer(sharing, model, VOCABULARY, TOKENIZER)
    assert first["shares"].data + answer.data == plain.text
