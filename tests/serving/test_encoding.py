"""Images are encoded before a request goes to the engine: in fair order, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from app.core.errors import LeapjsonError, QueueFull
from app.core.images import Features, PreparedImage, PromptImage, PromptImages
from app.core.request import ServiceTier
from app.serving.admission import Admission, Ticket
from app.serving.images.encoding import ImageEncoder

MOST = 1 << 10
"""Maximum bytes of the images of all requests together."""


def image(name: str, tokens: int = 2) -> PreparedImage:
    pixels = np.zeros(100, dtype=np.uint8)
    return PreparedImage(name.encode().ljust(32), (0,) * tokens, {"pixel_values": pixels})


A, B, C = image("a"), image("b"), image("c")


class HeldEncoder:
    """An encoder that completes an image on ``finish``, with 10 bytes of features a token."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Future[Features], Callable[[], bool]]] = []
        """First letter, future and ``is_wanted`` of each requested image, in order."""

    def feature_bytes(self, image: PreparedImage) -> int:
        return 10 * image.num_tokens

    def encode(self, image: PreparedImage, is_wanted: Callable[[], bool]) -> Future[Features]:
        self.asked.append((image.digest[:1].decode(), Future(), is_wanted))
        return self.asked[-1][1]

    @property
    def names(self) -> str:
        return "".join(name for name, _, _ in self.asked)

    async def finish(self, error: Exception | None = None) -> None:
        """Complete or fail the last requested image, then run the event loop until it is idle."""
        _, future, _ = self.asked[-1]
        if error is None:
            future.set_result(np.full(20, ord(self.names[-1]), dtype=np.uint8))
        else:
            future.set_exception(error)
        await idle()


async def idle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Bench:
    def __init__(self, kept: int = 1 << 20) -> None:
        self.held = HeldEncoder()
        self.encoder = ImageEncoder(self.held, kept)
        self.admission = Admission(100, clock=lambda: 0.0, max_image_bytes=MOST)

    def ticket(self, tenant: str = "", tier: ServiceTier = ServiceTier.DEFAULT) -> Ticket:
        ticket = self.admission.enter(tenant, highest=ServiceTier.PRIORITY)
        ticket.take(1, tier)
        return ticket

    async def ask(
        self, *images: PreparedImage, ticket: Ticket | None = None, scope: str = ""
    ) -> asyncio.Task[PromptImages]:
        """Start to encode ``images`` and run until it waits; the ticket holds their pixels."""
        ticket = ticket or self.ticket()
        ticket.hold_images(sum(each.nbytes for each in images))
        prompt = PromptImages([PromptImage(each, ((0, each.num_tokens),)) for each in images])
        task = asyncio.create_task(self.encoder.encode(prompt, ticket, scope))
        await idle()
        return task


def features(prompt: PromptImages) -> str:
    found: list[Any] = [each.features for each in prompt.images]
    return "".join(chr(each[0]) for each in found)


async def test_a_prompt_has_the_features_of_its_images_and_no_pixels() -> None:
    bench = Bench()
    ticket = bench.ticket()
    task = await bench.ask(A, B, A, ticket=ticket)
    assert (bench.encoder.num_waiting, ticket.image_bytes) == (1, 300 + 40)
    await bench.held.finish()
    await bench.held.finish()
    prompt = task.result()
    assert features(prompt) == "aba"
    assert not any(each.image.inputs for each in prompt.images)
    assert bench.held.names == "ab", "a repeated image is encoded once"
    assert (bench.encoder.num_waiting, ticket.image_bytes) == (0, 40)
    assert (bench.encoder.computed, bench.encoder.found) == (2, 0)
    ticket.leave()
    assert bench.admission.images.used == 0


async def test_recently_encoded_images_are_not_encoded_again() -> None:
    bench = Bench(kept=40)
    for each in (A, B, A, C, A, B):
        task = await bench.ask(each)
        if not task.done():
            await bench.held.finish()
        assert features(task.result()) == each.digest[:1].decode()
    assert bench.held.names == "abcb", "the least recently used image was evicted"
    assert (bench.encoder.found, bench.encoder.kept.nbytes) == (2, 40)


async def test_an_image_of_another_scope_is_encoded_again() -> None:
    bench = Bench()
    for scope in ("one", "two", "one"):
        task = await bench.ask(A, scope=scope)
        if not task.done():
            await bench.held.finish()
        assert features(task.result()) == "a"
    assert bench.held.names == "aa", "the time would tell one tenant what another sent"


async def test_an_image_that_several_wait_for_is_encoded_once() -> None:
    bench = Bench()
    tasks = [await bench.ask(A) for _ in range(3)]
    await bench.held.finish()
    assert [features(task.result()) for task in tasks] == ["a"] * 3
    assert bench.held.names == "a"


async def test_tenants_take_turns_and_higher_classes_go_first() -> None:
    bench = Bench()
    for name in "abc":
        await bench.ask(image(name), ticket=bench.ticket("one"))
    await bench.ask(image("f"), ticket=bench.ticket("three", ServiceTier.FLEX))
    await bench.ask(image("x"), ticket=bench.ticket("two"))
    await bench.ask(image("p"), ticket=bench.ticket("three", ServiceTier.PRIORITY))
    for _ in range(6):
        await bench.held.finish()
    order = bench.held.names
    assert order[:2] == "ap", "the first had started when the priority request came"
    assert order.index("x") < order.index("c")
    assert order[-1] == "f"


async def test_an_encoder_that_fails_fails_one_request() -> None:
    bench = Bench()
    fails, goes_on = await bench.ask(A), await bench.ask(B)
    await bench.held.finish(RuntimeError("shapes do not match"))
    error = fails.exception()
    assert type(error) is LeapjsonError
    assert "vision encoder failed" in str(error)
    await bench.held.finish()
    assert features(goes_on.result()) == "b"
    again = await bench.ask(A)
    await bench.held.finish()
    assert features(again.result()) == "a", "a failure is not remembered"


@pytest.mark.parametrize("place", [0, 1])
async def test_a_request_that_is_cancelled_lets_the_next_go_on(place: int) -> None:
    bench = Bench()
    tasks = [await bench.ask(each) for each in (A, B, C)]
    tasks[place].cancel()
    await idle()
    _, _, is_wanted = bench.held.asked[0]
    assert is_wanted() == (place != 0), "the encoder stops before its next layer"
    if place == 1:
        await bench.held.finish()
    for name in "bc" if place == 0 else "c":
        assert bench.held.names[-1] == name
        await bench.held.finish()
    assert [task.cancelled() for task in tasks] == [each == place for each in range(3)]
    assert bench.encoder.num_waiting == 0


async def test_features_that_there_is_no_room_for_are_not_computed() -> None:
    bench = Bench()
    bench.ticket().hold_images(MOST - 110)
    task = await bench.ask(A)
    with pytest.raises(QueueFull, match=f"the limit is {MOST}"):
        await task
    assert not bench.held.asked
