"""The tower's thread, and what it keeps: over a tower that a test holds up, and over a real one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from app.core.images import PreparedImage
from app.engine import Engine
from app.model.composition import load_runner
from app.model.vision.encoder import TowerThread
from app.model.vision.tower import NotWanted
from tests.engine.harness import Answer, drain, record, request, step
from tests.model.tiny import runner_config
from tests.model.vision.seeing import TOKENIZER, VOCABULARY, picture, seeing


def image(name: str) -> PreparedImage:
    return PreparedImage(name.encode().ljust(32), (0, 0), {})


A, B, C = image("a"), image("b"), image("c")


class HeldTower:
    """Sees nothing while ``gate`` is closed; asks meanwhile whether to go on."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.seen: list[bytes] = []
        self.broken: bytes = b""
        self.thread = 0

    def see(self, image: PreparedImage, is_wanted: Callable[[], bool]) -> Tensor:
        self.thread = threading.get_ident()
        self.entered.set()
        while not self.gate.wait(0.001):
            if not is_wanted():
                raise NotWanted
        if image.digest[:1] == self.broken:
            raise RuntimeError("shapes do not match")
        self.seen.append(image.digest[:1])
        return torch.full((1, 2, 1), float(image.digest[0]))


@pytest.fixture
def tower() -> HeldTower:
    return HeldTower()


@pytest.fixture
def thread(tower: HeldTower) -> Iterator[TowerThread]:
    made = _thread(tower)
    yield made
    made.close()


def _thread(tower: Any, max_bytes: int = 1 << 20) -> TowerThread:
    return TowerThread(tower, max_bytes, token_bytes=4)


def test_who_asks_does_not_wait_and_is_told_when_it_is_done(
    tower: HeldTower, thread: TowerThread
) -> None:
    told = threading.Event()
    thread.watch(told.set)
    look = thread.look([A, B])
    assert not look.is_done
    assert not told.is_set()
    tower.gate.set()
    look.wait()
    assert told.wait(300)
    assert tower.thread != threading.get_ident()
    assert thread.features(A).flatten().tolist() == [ord("a")] * 2
    assert thread.features(B).flatten().tolist() == [ord("b")] * 2
    assert thread.counts.computed == 2
    assert thread.counts.kept_bytes == 16


def test_an_image_that_many_ask_for_is_seen_once(tower: HeldTower, thread: TowerThread) -> None:
    looks = [thread.look([A, A]), thread.look([A]), thread.look([B, A])]
    tower.gate.set()
    for look in looks:
        look.wait()
    assert tower.seen == [b"a", b"b"]
    assert thread.look([A, B]).is_done, "at once: all are there"
    assert thread.counts.found == 4


def test_what_nobody_waits_for_any_more_is_given_up_amid_an_image(
    tower: HeldTower, thread: TowerThread
) -> None:
    gone, queued, stays = thread.look([A]), thread.look([B]), thread.look([C])
    assert tower.entered.wait(300)
    queued.drop()
    gone.drop()
    tower.gate.set()
    stays.wait()
    assert b"b" not in tower.seen
    again = thread.look([A])
    again.wait()
    assert thread.features(A).flatten().tolist() == [ord("a")] * 2


def test_what_another_still_waits_for_is_not_given_up(
    tower: HeldTower, thread: TowerThread
) -> None:
    gone, stays = thread.look([A]), thread.look([A])
    assert tower.entered.wait(300)
    gone.drop()
    tower.gate.set()
    stays.wait()
    assert tower.seen == [b"a"]


def test_an_image_that_fails_fails_who_asked_for_it_alone(
    tower: HeldTower, thread: TowerThread
) -> None:
    tower.broken = b"b"
    tower.gate.set()
    looks = [thread.look([A]), thread.look([B]), thread.look([C])]
    looks[0].wait()
    looks[2].wait()
    assert looks[1].is_done
    assert str(looks[1].error) == "shapes do not match"
    looks[1].drop()
    tower.broken = b""
    thread.look([B]).wait()  # it is not remembered


def test_what_was_used_least_recently_goes_but_for_what_is_held(tower: HeldTower) -> None:
    thread = _thread(tower, max_bytes=16)  # two images
    tower.gate.set()
    held = thread.look([A])
    held.wait()
    for each in (B, C):
        look = thread.look([each])
        look.wait()
        look.drop()
    assert thread.counts.kept_bytes == 16
    thread.features(A)
    assert thread.look([C]).is_done
    assert not thread.has_room([image("d")])
    assert thread.has_room([A, C]), "they are there"
    thread.look([B]).wait()
    assert tower.seen == [b"a", b"b", b"c", b"b"]
    assert thread.counts.kept_bytes == 24, "all of it is held"
    thread.close()


def test_what_is_larger_than_all_room_is_seen_alone(tower: HeldTower) -> None:
    thread = _thread(tower, max_bytes=1)
    tower.gate.set()
    assert thread.has_room([A, B])
    look = thread.look([A, B])
    assert not thread.has_room([C])
    look.wait()
    look.drop()
    assert thread.counts.kept_bytes == 0
    assert thread.has_room([C])
    thread.close()


def test_closing_ends_the_thread_amid_an_image(tower: HeldTower, thread: TowerThread) -> None:
    looks = [thread.look([A]), thread.look([B])]
    assert tower.entered.wait(300)
    (own,) = [each for each in threading.enumerate() if each.ident == tower.thread]
    thread.close()
    assert not tower.seen
    assert not own.is_alive()
    assert isinstance(looks[0].error, NotWanted)


def test_a_text_is_answered_while_the_tower_of_a_model_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = seeing(tmp_path, "llava")
    runner = load_runner(runner_config(model.folder, random_weights=False))
    assert runner.vision is not None
    gate = threading.Event()
    vision_encoder: Any = runner.vision_encoder
    see = vision_encoder._tower.see

    def held(*given: Any) -> Tensor:
        assert gate.wait(300)
        seen: Tensor = see(*given)
        return seen

    monkeypatch.setattr(vision_encoder._tower, "see", held)
    expanded = runner.vision.expand(model.tokens("IMAGE"), model.prepared(picture(1)))
    engine = Engine(runner, VOCABULARY, TOKENIZER)
    engine.add(replace(request("sees", expanded.tokens), images=expanded.images))
    engine.add(request("reads"))
    answer = Answer()
    while engine.has_work:
        for chunk in step(engine):
            assert chunk.request_id == "reads"
            record(answer, chunk)
    assert answer.finish_reason is not None
    assert engine.num_waiting == 1
    gate.set()
    assert drain(engine).keys() == {"sees"}
    runner.close()


def test_the_steps_have_all_threads_and_the_tower_half_of_them(tower: HeldTower) -> None:
    before, of_tower = torch.get_num_threads(), list[int]()
    own = tower.see

    def see(image: PreparedImage, is_wanted: Callable[[], bool]) -> Tensor:
        of_tower.append(torch.get_num_threads())
        return own(image, is_wanted)

    tower.see = see  # type: ignore[method-assign]
    tower.gate.set()
    try:
        torch.set_num_threads(4)
        thread = _thread(tower)
        thread.look([A]).wait()
        other = list[int]()
        new = threading.Thread(target=lambda: other.append(torch.get_num_threads()))
        new.start()
        new.join()
        assert (of_tower, other, torch.get_num_threads()) == ([2], [4], 4)
        thread.close()
    finally:
        torch.set_num_threads(before)


def test_a_tower_is_left_between_two_layers(tmp_path: Path) -> None:
    model = seeing(tmp_path, "qwen2_5_vl")
    runner = load_runner(runner_config(model.folder, random_weights=False))
    vision_encoder: Any = runner.vision_encoder
    asked: list[bool] = []

    def twice() -> bool:
        asked.append(True)
        return len(asked) < 2

    with pytest.raises(NotWanted):
        vision_encoder._tower.see(model.prepared(picture(1))[0], twice)
    assert len(asked) == 2
    runner.close()
