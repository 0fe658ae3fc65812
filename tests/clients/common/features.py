"""Shared by the clients' scripts: checks that print a JSON line each, and their prompts."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import inspect
import json
import os
import signal
import sys
import traceback
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

BASE_URL = os.environ["BASE_URL"]
"""Ends with ``/v1``, as clients expect."""
MODEL = os.environ["MODEL"]
PICTURE = os.environ.get("PICTURE", "")
"""Path of the picture of ``CARD``. If it is set, only checks of images run, else all others."""
SECONDS = 90
"""Time-out of a check; the demo model answers in one or two seconds."""

CONTACT_TEXT = (
    "Extract the contact from: Daniel Okafor works for Northwind Traders. "
    "His email is daniel@northwind.org and his number is (212) 555-0187."
)
REVIEW_TEXT = (
    "Extract the review from: I bought the Greenford lamp last week. Bad. 2 stars. "
    "It has a weak battery and a noisy screen. Verified buyer."
)
OVERLONG_TEXT = "far too long " * 20_000
"""More than the demo model's context; each client classifies the error in its own way."""
UNSUPPORTED_SCHEMA = {
    "type": "object",
    "properties": {
        "numbers": {"type": "array", "items": {"type": "integer"}, "not": {"uniqueItems": True}}
    },
    "required": ["numbers"],
    "additionalProperties": False,
}
"""A valid schema that is refused with 400: a repeated item cannot be enforced."""


class Contact(BaseModel):
    """A person's contact details."""

    model_config = ConfigDict(extra="forbid")

    name: str
    email: str
    phone: str


class Review(BaseModel):
    """A review of a product."""

    model_config = ConfigDict(extra="forbid")

    product: str
    rating: int
    sentiment: Literal["positive", "negative", "neutral"]
    verified: bool


class Wand(BaseModel):
    """A wand."""

    model_config = ConfigDict(extra="forbid")

    wood: str
    core: str


class Card(BaseModel):
    """A character's card."""

    model_config = ConfigDict(extra="forbid")

    name: str
    house: str
    level: int
    wand: Wand


CARD_TEXT = "Read this card."
CARD = Card(name="George Skouyea", house="Queajei", level=40, wand=Wand(wood="beech", core="wolf"))
"""The content of the picture."""


def picture_base64() -> str:
    return base64.b64encode(Path(PICTURE).read_bytes()).decode()


def picture_url() -> str:
    return f"data:image/png;base64,{picture_base64()}"


COLUMNS: Mapping[str, Mapping[str, str]] = {
    "chat": {
        name: name
        for name in ("text", "stream", "json_schema", "tools", "tools streamed", "tool loop")
    },
    "responses": {
        "text": "responses",
        "stream": "responses streamed",
        "json_schema": "responses",
        "tools": "responses tools",
        "tools streamed": "responses tools",
        "tool loop": "responses tools",
    },
}
"""Features of the page by API, for checks that both have."""


@contextlib.contextmanager
def raises(*kinds: type[Exception]) -> Iterator[Any]:
    """Asserts that the block raises one of ``kinds``, which ``error`` of the result then is."""
    caught = SimpleNamespace()
    try:
        yield caught
    except kinds as error:
        caught.error = error
    else:
        raise AssertionError("accepted")


class NotApplicable(Exception):
    """The check does not apply to this server; the message has the reason."""


class Checks:
    """Runs checks in the order of their definition; each prints its result."""

    def __init__(self) -> None:
        self._checks: list[tuple[str, str, Callable[[], Any]]] = []

    def __call__(self, feature: str, name: str) -> Callable[[Callable[[], Any]], None]:
        """Registers a function, or a coroutine function, as a check of ``feature``.

        It passes if it returns; a text that it returns is kept as a remark.
        """

        def register(check: Callable[[], Any]) -> None:
            self._checks.append((feature, name, check))

        return register

    def run(self) -> None:
        """Runs the checks for the server's model whose names contain the text in ``CHECK``."""
        wanted = os.environ.get("CHECK", "")
        for feature, name, check in self._checks:
            if wanted in name and (feature == "images") == bool(PICTURE):
                _announce(f"{feature}: {name}")
                ok, detail = _outcome(check)
                line = {"feature": feature, "check": name, "ok": ok, "detail": detail}
                print(json.dumps(line), flush=True)
        # Some libraries leave threads behind that would keep the process alive.
        sys.stdout.flush()
        os._exit(0)


def _outcome(check: Callable[[], Any]) -> tuple[bool | None, str]:
    def too_late(*_: object) -> None:
        raise TimeoutError(f"no end after {SECONDS} seconds")

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(SECONDS)
    try:
        remark = asyncio.run(check()) if inspect.iscoroutinefunction(check) else check()
    except NotApplicable as why:
        return None, str(why)
    except BaseException as error:
        traceback.print_exc()
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = str(error) or f"{place.name}: {place.line}"
        return False, f"{type(error).__name__}: {text}"
    finally:
        signal.alarm(0)
    return True, remark or ""


def _announce(label: str) -> None:
    """Sends the label of the next requests to the recorder, if there is one."""
    print(f"--- {label}", file=sys.stderr, flush=True)
    recorder = os.environ.get("RECORDER")
    if recorder:
        urllib.request.urlopen(f"{recorder}/-/label?{urllib.parse.quote(label)}").read()
