"""Images are looked at beside the steps: who waits for that holds nobody up, and loses nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.core.errors import LeapjsonError
from app.core.events import TokenChunk
from app.core.images import PreparedImage, PromptImage, PromptImages
from app.core.request import EngineRequest
from app.engine import Engine, EngineConfig
from tests.engine.harness import (
    TOKENIZER,
    VOCABULARY,
    Answer,
    Recorder,
    drain,
    make_engine,
    random_config,
    random_request,
    record,
    request,
    step,
)
from tests.engine.naive import naive_answer
from tests.fakes import FakeEncoder, ScriptedModel

ONE = EngineConfig(max_running=1)


def image(name: str, length: int = 6) -> PreparedImage:
    return PreparedImage(name.encode().ljust(32), (VOCABULARY.special,) * length, {})


A, B, C = image("a"), image("b"), image("c")


def seeing(name: str, *parts: str | PreparedImage, **more: Any) -> EngineRequest:
    """A request whose prompt is ``parts``, texts and images."""
    tokens: list[int] = []
    seen = []
    for part in parts:
        if isinstance(part, str):
            tokens += TOKENIZER.encode(part)
        else:
            seen.append(PromptImage(part, ((len(tokens), part.num_tokens),)))
            tokens += part.expansion
    return replace(request(name, tokens, **more), images=PromptImages(seen))


def steps(engine: Engine, number: int = 200) -> dict[str, Answer]:
    """What comes until there is no work, or of so many steps."""
    answers: dict[str, Answer] = {}
    for _ in range(number):
        if not engine.has_work:
            break
        for chunk in step(engine):
            record(answers.setdefault(chunk.request_id, Answer()), chunk)
        engine.check_integrity()
    return answers


def test_texts_are_answered_while_an_image_is_looked_at() -> None:
    vision_encoder = FakeEncoder()
    engine = make_engine(ONE, vision_encoder=vision_encoder)
    engine.add(seeing("sees", "look: ", A))
    engine.add(request("reads"))
    answers = steps(engine)
    assert answers["reads"].finish_reason == "length"
    assert answers.keys() == {"reads"}
    assert not engine.has_work, "whoever runs the engine may sleep"
    assert (engine.num_running, engine.num_waiting, engine.num_awaiting_vision) == (0, 1, 1)
    vision_encoder.finish()
    assert drain(engine)["sees"].finish_reason == "length"
    assert not vision_encoder.looks


def test_news_are_told_when_there_is_work_again() -> None:
    vision_encoder, told = FakeEncoder(), []
    engine = make_engine(vision_encoder=vision_encoder)
    engine.watch(lambda: told.append(engine.has_work))
    engine.add(seeing("sees", A))
    assert not engine.has_work
    vision_encoder.finish()
    assert told == [True]


def test_who_waits_for_the_tower_keeps_its_place() -> None:
    vision_encoder = FakeEncoder()
    engine = make_engine(ONE, vision_encoder=vision_encoder)
    for one in (request("first"), seeing("second", A), request("third")):
        engine.add(one)
    step(engine)
    vision_encoder.finish()
    order = [
        chunk.request_id
        for _ in range(500)
        if engine.has_work
        for chunk in step(engine)
        if chunk.finish_reason
    ]
    assert order == ["first", "second", "third"]


def test_a_sequence_holds_features_until_its_images_are_computed() -> None:
    vision_encoder = FakeEncoder()
    config = EngineConfig(max_running=4, max_batch_tokens=4)
    engine = make_engine(config, vision_encoder=vision_encoder)
    engine.add(seeing("r", "ab", A, "ab", B, "and much more text behind", max_tokens=3))
    vision_encoder.finish()
    held = []
    while not steps(engine, 1):
        held.append(len(vision_encoder.looks))
    assert vision_encoder.asked == [[b"a", b"b"]]
    assert held == sorted(held, reverse=True)
    assert set(held) == {0, 1}


def test_what_the_prefix_cache_has_is_not_looked_at() -> None:
    vision_encoder = FakeEncoder()
    engine = make_engine(vision_encoder=vision_encoder)
    engine.add(seeing("first", A, "text that fills a block"))
    vision_encoder.finish()
    drain(engine)
    engine.add(seeing("again", A, "text that fills a block"))
    assert drain(engine)["again"].usage is not None
    engine.add(seeing("more", A, "text that fills a block", B))
    vision_encoder.finish()
    drain(engine)
    assert vision_encoder.asked == [[b"a"], [b"b"]]


def test_what_is_evicted_while_a_sequence_waits_is_looked_at_after_all() -> None:
    vision_encoder = FakeEncoder()
    engine = make_engine(ONE, vision_encoder=vision_encoder, num_blocks=16)
    engine.add(seeing("first", A, "cdef", max_tokens=1))
    vision_encoder.finish()
    drain(engine)
    engine.add(request("long", max_tokens=55))
    step(engine)
    engine.add(seeing("waits", A, "cdef", B, max_tokens=1))
    vision_encoder.finish()
    steps(engine)  # all blocks go to the long one
    assert vision_encoder.asked == [[b"a"], [b"b"], [b"a", b"b"]]
    vision_encoder.finish()
    assert drain(engine).keys() == {"waits"}
    assert not vision_encoder.looks


def test_what_is_preempted_before_its_images_are_computed_still_holds_them() -> None:
    vision_encoder, recorder = FakeEncoder(), Recorder()
    config = EngineConfig(max_running=2, max_batch_tokens=3, max_prefill_tokens=2)
    engine = make_engine(config, vision_encoder=vision_encoder, num_blocks=12, observer=recorder)
    engine.add(request("old", "ab", max_tokens=44))
    step(engine)
    engine.add(seeing("new", "some text before it ", image("a", 20), max_tokens=2))
    vision_encoder.finish()
    drain(engine)
    assert sum(stats.preemptions for stats in recorder.steps) > 0
    assert len(vision_encoder.asked) == 1


@pytest.mark.parametrize("moment", ["queued", "asked", "done", "running"])
def test_who_goes_away_frees_what_it_holds(moment: str) -> None:
    vision_encoder = FakeEncoder()
    config = EngineConfig(max_running=3, max_batch_tokens=3)
    engine = make_engine(config, vision_encoder=vision_encoder)
    before = [seeing(f"before {i}", image(f"{i}")) for i in range(2)]
    for one in before if moment == "queued" else ():
        engine.add(one)
    engine.add(seeing("gone", A, B))
    if moment in ("done", "running"):
        vision_encoder.finish()
    if moment == "running":
        step(engine)
        assert engine.num_running == 1
    chunk = engine.abort("gone")
    assert chunk is not None
    assert chunk.finish_reason == "abort"
    engine.check_integrity()
    assert [b"a", b"b"] not in [
        [i.digest[:1] for i in look.images] for look in vision_encoder.looks
    ]
    for _ in vision_encoder.undone:
        vision_encoder.finish()
    assert len(drain(engine)) == len(before if moment == "queued" else ())
    assert not vision_encoder.looks


def test_where_nobody_waits_any_more_the_next_is_looked_at() -> None:
    vision_encoder = FakeEncoder()
    engine = make_engine(vision_encoder=vision_encoder)
    for name in "abc":
        engine.add(seeing(name, image(name)))
    assert vision_encoder.asked == [[b"a"], [b"b"]]
    engine.abort("a")
    assert vision_encoder.asked == [[b"a"], [b"b"], [b"c"]]
    for _ in "bc":
        vision_encoder.finish()
    assert drain(engine).keys() == {"b", "c"}


def test_a_tower_that_fails_ends_one_answer_with_an_error() -> None:
    vision_encoder = FakeEncoder()
    engine = make_engine(vision_encoder=vision_encoder)
    engine.add(request("reads", max_tokens=100))
    engine.add(seeing("fails", A))
    engine.add(seeing("sees", B))
    step(engine)
    vision_encoder.finish(RuntimeError("shapes do not match"))
    vision_encoder.finish()
    chunks: list[TokenChunk] = []
    while engine.has_work:
        chunks += step(engine)
        engine.check_integrity()
    (failed,) = [chunk for chunk in chunks if chunk.request_id == "fails"]
    assert failed.finish_reason == "error"
    assert type(failed.error) is LeapjsonError
    assert "its vision tower failed" in str(failed.error)
    ends = {chunk.request_id: chunk.finish_reason for chunk in chunks if chunk.finish_reason}
    assert ends == {"fails": "error", "reads": "length", "sees": "length"}
    assert not vision_encoder.looks


def test_features_beyond_the_room_for_them_are_not_asked_for() -> None:
    vision_encoder = FakeEncoder(room=10)
    engine = make_engine(vision_encoder=vision_encoder)
    for name in "abc":
        engine.add(seeing(name, image(name)))
    ended: list[str] = []
    for name in "abc":
        assert vision_encoder.asked[-1] == [name.encode()]
        vision_encoder.finish()
        ended += steps(engine)
    assert ended == ["a", "b", "c"]
    assert vision_encoder.most == 6


def test_what_is_too_large_for_the_room_is_looked_at_alone() -> None:
    vision_encoder = FakeEncoder(room=10)
    engine = make_engine(vision_encoder=vision_encoder)
    engine.add(seeing("small", A))
    engine.add(seeing("large", image("l", 30)))
    engine.add(seeing("behind", B))
    for asked in ([b"a"], [b"l"], [b"b"]):
        assert vision_encoder.asked[-1] == asked
        vision_encoder.finish()
        steps(engine)
    assert not engine.num_waiting


def test_tenants_take_turns_at_the_tower() -> None:
    vision_encoder = FakeEncoder()
    engine = make_engine(vision_encoder=vision_encoder)
    for number in range(5):
        engine.add(replace(seeing(f"a{number}", image(f"a{number}")), tenant="a"))
    engine.add(replace(seeing("b", image("b")), tenant="b"))
    while vision_encoder.undone:
        vision_encoder.finish()
        steps(engine)
    # Two were begun when it came, and one came before it.
    assert [name for (name,) in vision_encoder.asked] == [b"a", b"a", b"a", b"b", b"a", b"a"]


@pytest.mark.parametrize("seed", range(60))
def test_whenever_images_are_looked_at_answers_are_those_of_plain_decoding(seed: int) -> None:
    rng = random.Random(seed)
    vision_encoder = FakeEncoder(rng.choice([1, 20, 1000]))
    model, config = ScriptedModel(VOCABULARY), random_config(rng)
    requests = [_with_images(rng, random_request(rng, index)) for index in range(8)]
    size = rng.choice([1, 2, 4, 16])
    longest = max(len(one.prompt) + one.max_tokens for one in requests)
    blocks = -(-longest // size) + rng.choice([0, 1, 5, 100])
    engine = make_engine(
        config, model=model, num_blocks=blocks, block_size=size, vision_encoder=vision_encoder
    )
    answers = _answers(rng, engine, vision_encoder, requests)
    for one in requests:
        plain = naive_answer(one, model, VOCABULARY, TOKENIZER)
        assert answers[one.request_id].data == plain.text, one.request_id
    assert not vision_encoder.looks, "features are held after the last answer"


def _with_images(rng: random.Random, one: EngineRequest) -> EngineRequest:
    if rng.random() < 0.3:
        return one
    text = "the same beginning, " * rng.randint(0, 1)
    parts = [part for _ in range(rng.randint(1, 3)) for part in (rng.choice([A, B, C]), text)]
    seen = seeing("", text, *parts)
    return replace(one, prompt=(*seen.prompt, *one.prompt), images=seen.images)


def _answers(
    rng: random.Random,
    engine: Engine,
    vision_encoder: FakeEncoder,
    requests: Sequence[EngineRequest],
) -> dict[str, Answer]:
    """Requests come, and images are looked at, at any time."""
    answers: dict[str, Answer] = {}
    left = list(requests)
    for _ in range(20_000):
        if left and rng.random() < 0.3:
            engine.add(left.pop(0))
        if vision_encoder.undone and (rng.random() < 0.2 or not (engine.has_work or left)):
            vision_encoder.finish()
        for chunk in step(engine) if engine.has_work else ():
            record(answers.setdefault(chunk.request_id, Answer()), chunk)
        engine.check_integrity()
        if not (left or engine.num_running or engine.num_waiting or engine.has_work):
            return answers
    raise AssertionError("the engine does not come to an end")
