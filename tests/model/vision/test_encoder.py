"""The thread of the vision tower, with a tower that tests can block and with a real one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from app.core.images import PreparedImage
from app.model.composition import load_runner
from app.model.vision.embeddings import TowerThread
from app.model.vision.tower import EncodingCancelled
from tests.model.tiny import runner_config
from tests.model.vision.seeing import picture, seeing


def image(name: str) -> PreparedImage:
    return PreparedImage(name.encode().ljust(32), (0, 0), {})


A, B, C = image("a"), image("b"), image("c")


class HeldTower:
    """Encodes nothing while ``gate`` is closed; meanwhile it checks whether the image is wanted."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.seen: list[bytes] = []
        self.broken: bytes = b""
        self.thread = 0

    def encode(self, image: PreparedImage, is_wanted: Callable[[], bool]) -> Tensor:
        self.thread = threading.get_ident()
        self.entered.set()
        while not self.gate.wait(0.001):
            if not is_wanted():
                raise EncodingCancelled
        if image.digest[:1] == self.broken:
            raise RuntimeError("shapes do not match")
        self.seen.append(image.digest[:1])
        return torch.full((2, 1, 1), float(image.digest[0]))


@pytest.fixture
def tower() -> HeldTower:
    return HeldTower()


@pytest.fixture
def thread(tower: HeldTower) -> Iterator[TowerThread]:
    made = _thread(tower)
    yield made
    made.close()


def _thread(tower: Any) -> TowerThread:
    return TowerThread(tower, token_bytes=4)


def test_encode_does_not_block_the_caller(tower: HeldTower, thread: TowerThread) -> None:
    first, second = thread.encode(A), thread.encode(B)
    assert not first.done()
    tower.gate.set()
    assert cast(Tensor, first.result(300)).flatten().tolist() == [ord("a")] * 2
    assert cast(Tensor, second.result(300)).flatten().tolist() == [ord("b")] * 2
    assert tower.thread != threading.get_ident()
    assert thread.feature_bytes(A) == first.result().nbytes


def test_an_unwanted_image_is_cancelled_while_it_is_encoded(
    tower: HeldTower, thread: TowerThread
) -> None:
    wanted = threading.Event()
    wanted.set()
    gone, queued = thread.encode(A, wanted.is_set), thread.encode(B, wanted.is_set)
    stays = thread.encode(C)
    assert tower.entered.wait(300)
    wanted.clear()
    for each in (gone, queued):
        assert isinstance(each.exception(300), EncodingCancelled)
    tower.gate.set()
    stays.result(300)
    assert tower.seen == [b"c"]


def test_an_image_that_fails_fails_alone(tower: HeldTower, thread: TowerThread) -> None:
    tower.broken = b"b"
    tower.gate.set()
    found = [thread.encode(each) for each in (A, B, C)]
    assert [str(each.exception(300) or "") for each in found] == ["", "shapes do not match", ""]


def test_closing_ends_the_thread_amid_an_image(tower: HeldTower, thread: TowerThread) -> None:
    first, second = thread.encode(A), thread.encode(B)
    assert tower.entered.wait(300)
    (own,) = [each for each in threading.enumerate() if each.ident == tower.thread]
    thread.close()
    assert not tower.seen
    assert not own.is_alive()
    assert isinstance(first.exception(), EncodingCancelled)
    assert second.cancelled()


def test_the_steps_have_all_threads_and_the_tower_half_of_them(tower: HeldTower) -> None:
    before, of_tower = torch.get_num_threads(), list[int]()
    own = tower.encode

    def encode(image: PreparedImage, is_wanted: Callable[[], bool]) -> Tensor:
        of_tower.append(torch.get_num_threads())
        return own(image, is_wanted)

    tower.encode = encode  # type: ignore[method-assign]
    tower.gate.set()
    try:
        torch.set_num_threads(4)
        thread = _thread(tower)
        thread.encode(A).result(300)
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

    with pytest.raises(EncodingCancelled):
        vision_encoder._tower.encode(model.prepared(picture(1))[0], twice)
    assert len(asked) == 2
    runner.close()
