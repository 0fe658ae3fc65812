"""Runs an engine over fakes to its end, and checks all invariants after each step."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, Literal

from app.core.cache import LEAST_SLOTS, StateSlots, window_blocks
from app.core.constraint import Constraint
from app.core.events import AnswerToken, AnswerUsage, StepStats, TokenChunk
from app.core.request import (
    EngineRequest,
    GenerationOptions,
    SamplingParams,
    ServiceTier,
    ThinkingBudget,
)
from app.engine import Engine, EngineConfig
from tests.engine.naive import NaiveAnswer, naive_answer
from tests.fakes import (
    ByteTokenizer,
    ByteVocabulary,
    FiniteConstraint,
    Group,
    QueuedRunner,
    ScriptedModel,
    ScriptedRunner,
)
from tests.integrity import check_engine

VOCABULARY = ByteVocabulary()
TOKENIZER = ByteTokenizer(VOCABULARY)
OVERLAP = False
"""Whether steps overlap; set by the fixture ``order``."""
STATES: StateSlots | None = None
"""Default slots for recurrent states; set by the fixture ``layers``."""
GREEDY = SamplingParams(temperature=0.0)
HOT = SamplingParams(temperature=1.0)


def constraint(*answers: str, tight: bool = True) -> FiniteConstraint:
    return FiniteConstraint([answer.encode() for answer in answers], VOCABULARY, tight=tight)


def templates(*parts: str | Sequence[str]) -> list[str]:
    """All texts with one option from each part; a string is a part with one option."""
    options = [[part] if isinstance(part, str) else list(part) for part in parts]
    return ["".join(choice) for choice in product(*options)]


LANGUAGES = (
    constraint(*templates('{"name": "', ["ab", "abab", "anana", "é", "éa"], '", "me": 12}')),
    constraint(*templates('{"ab": ', ["1", "12", "121", "2"], ', "or": "', ["n", "na"], '"}')),
    constraint("yes", "no", "none", "name", "n", tight=False),
    constraint(*templates("[", ["", "12, ", "12, 12, "], ["ab", "abc", "abababab"], "]")),
    constraint('{"only": "all of this is forced"}'),
    constraint(*templates(["a", "b", ""], ["ab", "bab"], ["lll", "llll", ""], ["or", "orab"])),
    constraint(*templates('{"é": "', ["é", "è"], '", "na', ["me", "m"], '": ""}'), tight=False),
    constraint(*templates(["p", "q", ""], "wxyz", ["1", "2"], ["", "wxyz"])),
)


@dataclass(slots=True)
class Answer:
    """The chunks of one request, joined."""

    data: bytes = b""
    entries: list[AnswerToken] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    """Tokens of the answer at its end."""
    usage: AnswerUsage = field(default_factory=AnswerUsage)
    finish_reason: str | None = None
    closed: bytes | None = None
    chunks: int = 0


class Recorder:
    def __init__(self) -> None:
        self.steps: list[StepStats] = []

    def observe_step(self, stats: StepStats) -> None:
        self.steps.append(stats)


def make_engine(
    config: EngineConfig | None = None,
    *,
    model: ScriptedModel | None = None,
    num_blocks: int = 256,
    block_size: int = 4,
    groups: Sequence[Group] | None = None,
    states: StateSlots | None = None,
    observer: Recorder | None = None,
) -> Engine:
    """An engine over fakes. If steps overlap, its device computes as late as possible."""
    if OVERLAP:
        config = replace(config or EngineConfig(pipelined_answers=2), overlap=True)
    kind = QueuedRunner if OVERLAP else ScriptedRunner
    runner = kind(
        model or ScriptedModel(VOCABULARY),
        num_blocks=num_blocks,
        block_size=block_size,
        groups=groups,
        states=states or STATES,
    )
    return Engine(runner, VOCABULARY, TOKENIZER, config, observer)


_OPTIONS = frozenset(each.name for each in fields(GenerationOptions)) - {
    *("max_tokens", "seed", "choices")
}


def varied(one: EngineRequest, **changes: Any) -> EngineRequest:
    """``one`` with ``changes`` to its own fields or those of its options."""
    options = {name: changes.pop(name) for name in list(changes) if name in _OPTIONS}
    return replace(one, options=replace(one.options, **options), **changes)


def request(
    name: str = "r",
    prompt: str | Sequence[int] = "say: ",
    *,
    allowed: Constraint | None = None,
    max_tokens: int = 40,
    sampling: SamplingParams = GREEDY,
    seed: int = 0,
    stop: Sequence[bytes] = (),
    on_budget: Literal["finish", "truncate"] = "finish",
    leap: bool = True,
) -> EngineRequest:
    tokens = TOKENIZER.encode(prompt) if isinstance(prompt, str) else prompt
    return EngineRequest(
        request_id=name,
        prompt=tuple(tokens),
        max_tokens=max_tokens,
        options=GenerationOptions(
            sampling=sampling, stop=tuple(stop), on_budget=on_budget, leap=leap
        ),
        seed=seed,
        constraint=allowed,
    )


def passes(answer: Answer) -> int:
    return answer.usage.forward_passes


def record(answer: Answer, chunk: TokenChunk) -> None:
    """Add a chunk to an answer, and check what holds for every chunk."""
    assert answer.finish_reason is None, "a chunk after the last one"
    assert chunk.data == b"".join(token.data for token in chunk.tokens)
    assert chunk.tokens or chunk.finish_reason
    answer.data += chunk.data
    answer.entries.extend(chunk.tokens)
    answer.usage = chunk.usage
    answer.finish_reason = chunk.finish_reason
    answer.closed = chunk.closed
    answer.chunks += 1


def step(engine: Engine) -> list[TokenChunk]:
    """Run one step; return all its chunks."""
    return [chunk for output in engine.step() for chunk in output.chunks]


def drain(engine: Engine, limit: int = 20_000) -> dict[str, Answer]:
    """Step until the engine has no work; return the answers by request id."""
    answers: dict[str, Answer] = {}
    for _ in range(limit):
        if not engine.has_work:
            break
        _step_into(engine, answers)
    assert not engine.has_work, "the engine does not finish"
    assert engine.num_running == engine.num_waiting == 0
    assert engine.kv_usage == 0.0, "blocks are held after the last answer"
    assert engine.state_usage == 0.0, "states are held after the last answer"
    return answers


def live(
    rng: random.Random, engine: Engine, requests: Sequence[EngineRequest], aborts: float = 0.0
) -> dict[str, Answer]:
    """Add requests while others run, and abort some; return the answers of the others."""
    answers: dict[str, Answer] = {}
    coming, aborted = list(requests), set[str]()
    while coming or engine.has_work:
        if coming and rng.random() < 0.5:
            engine.add(coming.pop())
        if rng.random() < aborts:
            last = engine.abort(rng.choice(requests).request_id)
            aborted |= {last.request_id} if last is not None else set()
            check_engine(engine)
        _step_into(engine, answers)
    drain(engine)
    ended = {name: answer for name, answer in answers.items() if answer.finish_reason is not None}
    assert ended.keys() ^ aborted == {one.request_id for one in requests}
    return ended


def _step_into(engine: Engine, answers: dict[str, Answer]) -> None:
    live = dict(engine._sequences)  # only to read the tokens of ended answers
    for chunk in step(engine):
        answer = answers.setdefault(chunk.request_id, Answer())
        record(answer, chunk)
        sequence = live[chunk.request_id]
        answer.tokens = sequence.tokens[sequence.answer_start :]
    check_engine(engine)


def answers_of(engine: Engine, requests: Iterable[EngineRequest]) -> dict[str, Answer]:
    for one in requests:
        engine.add(one)
    return drain(engine)


def answer_of(engine: Engine, one: EngineRequest) -> Answer:
    return answers_of(engine, [one])[one.request_id]


def plain_answer(one: EngineRequest, model: ScriptedModel) -> NaiveAnswer:
    """The answer of plain decoding."""
    return naive_answer(one, model, VOCABULARY, TOKENIZER)


def check_plain(
    answers: Mapping[str, Answer], requests: Iterable[EngineRequest], model: ScriptedModel
) -> None:
    """Check that the answers to ``requests`` are those of plain decoding."""
    for one in requests:
        plain, answer = plain_answer(one, model), answers[one.request_id]
        assert (answer.data, answer.finish_reason) == (plain.text, plain.finish_reason)
        if not one.options.stop:
            assert answer.tokens == plain.tokens


def random_config(rng: random.Random) -> EngineConfig:
    running = rng.choice([1, 2, 5, 16])
    return EngineConfig(
        pipelined_answers=rng.choice([1, 1, 2, 3, 64]),
        max_batch_tokens=running + rng.choice([0, 3, 17, 200]),
        max_running=running,
        max_prefill_tokens=rng.choice([1, 3, 8, 64]),
        spare_tokens=rng.choice([1, 16, 1000]),
        small_gap_tokens=rng.choice([1, 4, 32]),
        max_draft_tokens=rng.choice([0, 1, 4, 8]),
        leap=True,
        share_prefixes=rng.random() < 0.8,
    )


def random_groups(rng: random.Random, tokens: int, block_size: int, step: int) -> list[Group]:
    """Cache groups with room for a sequence of ``tokens``, computed ``step`` tokens at a time."""
    full = -(-tokens // block_size)
    groups = [Group(full + rng.choice([0, 1, 5, 100]))] if rng.random() < 0.7 else []
    for _ in range(rng.choice([0, 1, 1, 2]) if groups else rng.choice([1, 2])):
        window = rng.choice([2, 3, 5, 8, 13, 40])
        in_flight = 2 * step if OVERLAP else step
        enough = window_blocks(window, block_size) - (-in_flight // block_size)
        groups.append(Group(min(full, enough) + rng.choice([0, 1, 5, 100]), window))
    return groups


def random_states(rng: random.Random, block_size: int) -> StateSlots:
    """State slots, down to the fewest with which the engine can run."""
    count = rng.choice([LEAST_SLOTS, LEAST_SLOTS, 4, 6, 10, 30, 200])
    return StateSlots(count, block_size * rng.choice([1, 1, 2, 5, 1000]))


def random_layers(
    rng: random.Random, tokens: int, block_size: int, step: int
) -> tuple[Sequence[Group], StateSlots | None]:
    """Attention, recurrent layers, or both, with room for a sequence of ``tokens``."""
    groups = random_groups(rng, tokens, block_size, step)
    if rng.random() < 0.5:
        return groups, None
    return groups if rng.random() < 0.7 else (), random_states(rng, block_size)


def random_request(rng: random.Random, index: int) -> EngineRequest:
    shared = "the same long prompt, " * rng.randint(0, 2)
    own = "".join(rng.choice("abnme{1 é") for _ in range(rng.randint(1, 20)))
    allowed = rng.choice([*LANGUAGES, None])
    shortest = allowed.start().shortest_tokens() if allowed is not None else 1
    sampling = SamplingParams(
        temperature=rng.choice([0.0, 1.0, 1.5]), frequency_penalty=rng.choice([0.0, 0.0, 0.7])
    )
    one = request(
        f"r{index}",
        shared + own,
        allowed=allowed,
        max_tokens=max(1, shortest) + rng.choice([0, 1, 3, 10, 30]),
        sampling=sampling,
        seed=rng.randrange(-(2**40), 2**70),
        stop=rng.choice([(), (), (b"na", b"nam"), (b'",',), (b"12", b"2}", b"a")]),
        on_budget=rng.choice(["finish", "finish", "truncate"]),
        leap=rng.random() < 0.85,
    )
    return replace(one, tenant="abc"[index % 3], tier=ServiceTier(index % 4))


def random_ends(rng: random.Random, one: EngineRequest) -> EngineRequest:
    """``one`` with random values of all options that delay or cause its end."""
    ids = VOCABULARY.ids
    stops: tuple[Sequence[int], ...] = (
        (),
        (),
        (VOCABULARY.special,),
        (VOCABULARY.special, VOCABULARY.eos),
        (VOCABULARY.special, ids[b"name"], ids[b"b"], ids[b"12"]),
        (ids[b"na"], ids[b'": '], ids[b"ab"], ids[b"abab"]),
        rng.sample(range(VOCABULARY.size), 60),
        range(VOCABULARY.size),
    )
    marks = (b"a", b"na", b'": ', b", ", b'"', b"wxyz", b"never")
    openings = (b"", b"", b"a", b'{"', b'{"na', b"no")
    thinking = ThinkingBudget(rng.choice([0, 1, 2, 5, 50]), rng.choice(marks), rng.choice(openings))
    return varied(
        one,
        min_tokens=min(one.max_tokens, rng.choice([0, 0, 1, 2, 5, 12, 1000])),
        ignore_eos=rng.random() < 0.3,
        stop_token_ids=rng.choice(stops),
        open_ended=rng.random() < 0.5,
        thinking=rng.choice([None, thinking]),
    )
