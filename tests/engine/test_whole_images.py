"""Images that are computed in one step, among answers and other prompts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from app.core.errors import InvalidRequest
from app.core.images import PreparedImage, PromptImage, PromptImages
from app.engine import EngineConfig
from tests.engine.harness import make_engine, request
from tests.engine.test_scheduler import Bench
from tests.wide import many


def images_at(*places: tuple[int, int]) -> PromptImages:
    return PromptImages([PromptImage(PreparedImage(b"", (), {}), places, "all")])


def test_no_step_ends_inside_an_image_whoever_else_is_computed() -> None:
    for seed in range(many(200, 4)):
        dice = random.Random(seed)
        most = dice.randint(12, 40)
        bench = Bench(
            blocks=dice.choice([60, 400]),
            max_running=4,
            prefill_tokens=dice.randint(1, 30),
            batch_tokens=most,
        )
        insides: dict[str, set[int]] = {}
        for number in range(8):
            tokens, places = [dice.randint(1, 9) for _ in range(dice.randint(1, 9))], []
            for _ in range(dice.randint(0, 3)):
                places.append((len(tokens), dice.randint(1, most - 4)))
                tokens += [0] * places[-1][1] + [dice.randint(1, 9) for _ in range(1, 9)]
            name = str(number)
            insides[name] = {at for start, n in places for at in range(start + 1, start + n)}
            bench.add(name, tokens, images=images_at(*places) if places else None, max_tokens=1000)
        for _ in range(400):
            bench.step(grow=dice.randint(1, 5))
            for name, sequence in bench.sequences.items():
                assert sequence.computed not in insides[name]
            for sequence in [*bench.scheduler.running]:
                if sequence.length > 20:
                    bench.scheduler.remove(sequence)
            assert sum(len(span.tokens) for span in bench.spans) <= most
            if not bench.scheduler.running and not len(bench.scheduler.waiting):
                break
        else:
            raise AssertionError("some prompt is never computed")


def test_an_image_does_not_wait_for_answers_to_leave_room() -> None:
    bench = Bench(max_running=10, batch_tokens=40, prefill_tokens=8)
    for number in range(9):
        bench.add(f"answer {number}", [number + 1], max_tokens=1000)
    bench.step(grow=3)
    bench.add("image", [1, *[0] * 30, 2], images=images_at((1, 30)))
    for _ in range(2):
        bench.step(grow=3)  # more tokens than fit beside the image
    assert bench.sequences["image"].computed >= 31
    assert min(len(span.tokens) for span in bench.spans) > 0
    assert len(bench.spans) == 10, "each answer has at least one token"


def test_an_image_may_be_more_than_prompts_have_while_others_wait() -> None:
    bench = Bench(max_running=4, batch_tokens=64, prefill_tokens=8)
    bench.add("answer", [1], max_tokens=1000)
    bench.step(grow=1)
    bench.add("image", [1, 2, *[0] * 30, *[3] * 60], images=images_at((2, 30)))
    ends = []
    for _ in range(4):
        bench.step(grow=1)
        ends.append(bench.sequences["image"].computed)
    assert ends == [2, 32, 40, 48]


def test_an_image_that_no_step_has_room_for_is_refused() -> None:
    config = EngineConfig(max_batch_tokens=32, max_running=8)
    engine = make_engine(config)
    one = request("r", [1, *[0] * 25, 2])
    with pytest.raises(InvalidRequest, match=r"an image of 25 tokens .* limit is 24"):
        engine.add(replace(one, images=images_at((1, 25))))
    engine.add(replace(one, images=images_at((1, 24))))
