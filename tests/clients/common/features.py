"""What the clients' scripts share: checks that report one JSON line each, and what they ask for."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import signal
import sys
import traceback
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

BASE_URL = os.environ["BASE_URL"]
"""With ``/v1`` at its end, as clients take it."""
MODEL = os.environ["MODEL"]
PICTURE = os.environ.get("PICTURE", "")
"""Of the card below; there where the server's model sees. The checks of images are for it alone."""
SECONDS = 90
"""What a check may take; the demo model answers in one or two."""

CONTACT_TEXT = (
    "Extract the contact from: Daniel Okafor works for Northwind Traders. "
    "His email is daniel@northwind.org and his number is (212) 555-0187."
)
REVIEW_TEXT = (
    "Extract the review from: I bought the Greenford lamp last week. Bad. 2 stars. "
    "It has a weak battery and a noisy screen. Verified buyer."
)
OVERLONG_TEXT = "far too long " * 20_000
"""More than the demo model's context; what a client makes of the error is its own classifier's."""
UNSUPPORTED_SCHEMA = {
    "type": "object",
    "properties": {
        "numbers": {"type": "array", "items": {"type": "integer"}, "not": {"uniqueItems": True}}
    },
    "required": ["numbers"],
    "additionalProperties": False,
}
"""Valid, and refused with a 400: that an item is there twice cannot be enforced."""


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
"""What stands in the picture."""


def picture_base64() -> str:
    return base64.b64encode(Path(PICTURE).read_bytes()).decode()


def picture_url() -> str:
    return f"data:image/png;base64,{picture_base64()}"


class NotApplicable(Exception):
    """The client has this, and it does not concern this server; says why."""


class Checks:
    """Runs checks in the order in which they are written; each prints what came of it."""

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
        """Every check for the server's model, or those whose name holds the text in ``CHECK``."""
        wanted = os.environ.get("CHECK", "")
        for feature, name, check in self._checks:
            if wanted in name and (feature == "images") == bool(PICTURE):
                _announce(f"{feature}: {name}")
                ok, detail = _outcome(check)
                line = {"feature": feature, "check": name, "ok": ok, "detail": detail}
                print(json.dumps(line), flush=True)
        # Some libraries leave threads behind that would keep the process.
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
    """Tells the recorder, where there is one, whose requests come next."""
    print(f"--- {label}", file=sys.stderr, flush=True)
    recorder = os.environ.get("RECORDER")
    if recorder:
        urllib.request.urlopen(f"{recorder}/-/label?{urllib.parse.quote(label)}").read()
