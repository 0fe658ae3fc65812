"""Extraction: the answers' values are in the prompt, which is a short text or a long document."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from loadtest.requests import Content, Request, Schema
from loadtest.schemas import distinct, strict_object
from loadtest.workloads.base import DEFAULT_MAX_TOKENS
from tools.demo_model.corpus import Example, Kind, examples
from tools.demo_model.records import agreeing, fields

_KINDS: tuple[Kind, ...] = ("contact", "invoice", "event", "review", "city", "notes")
_PER_KIND = 200
_CUSTOMERS = ("Brightwater Mills", "Oakfield Brothers", "Harbour Street Garage", "Lindqvist Foods")
_GOODS = ("copper pipes", "desk lamps", "garden chairs", "winter tyres", "paper rolls")
_CARRIERS = ("Northline", "Swift Parcel", "Baltic Road")
_REMARKS = (
    "The driver asked for the gate code and waited a while.",
    "Nothing else was noted on that day.",
    "The pallets were wrapped twice because of the rain.",
    "A copy of the papers went to the office upstairs.",
)


@dataclass(frozen=True, slots=True)
class ShortTexts:
    """The demo model's held-out tasks: texts of some hundred characters; kinds alternate."""

    name: str
    always_fresh: bool = False

    def request(self, number: int, nonce: str) -> Request:
        kind = _KINDS[number % len(_KINDS)]
        example = _held_out(kind)[number // len(_KINDS) % _PER_KIND]
        schema: Any = example.schema
        return Request(
            kind,
            example.messages,
            Schema(distinct(schema, nonce)),
            max_tokens=DEFAULT_MAX_TOKENS,
            expected=None if nonce else Fields(example.answer),
        )


@dataclass(frozen=True, slots=True)
class Fields:
    """An ``Expected`` that counts the correct fields of ``answer``."""

    answer: Any

    def right(self, content: Content) -> tuple[int, int]:
        expected = fields(self.answer)
        try:
            return agreeing(expected, fields(json.loads(content.text))), len(expected)
        except ValueError:
            return 0, len(expected)


@cache
def _held_out(kind: Kind) -> list[Example]:
    return list(islice(examples(kind, _PER_KIND, seed=11, split="held_out"), _PER_KIND))


@dataclass(frozen=True, slots=True)
class LongDocument:
    """A log of deliveries of ``characters`` characters, and a question about one of them.

    Every request has a different document, so a prefix cache does not help.
    """

    name: str
    characters: int
    always_fresh: bool = False

    def request(self, number: int, nonce: str) -> Request:
        rng = random.Random(number)
        entries: list[str] = []
        orders: list[str] = []
        while sum(map(len, entries)) < self.characters:
            orders.append(f"{rng.choice('ABCD')}{rng.randrange(10_000, 100_000)}")
            entries.append(_entry(rng, orders[-1]))
        question = f"Extract the delivery of order {rng.choice(orders)} as JSON."
        return Request(
            self.name,
            [{"role": "user", "content": "\n".join([*entries, question])}],
            Schema(distinct(_DELIVERY, nonce)),
            max_tokens=256,
        )


def _entry(rng: random.Random, order: str) -> str:
    date = f"20{rng.randrange(20, 27)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
    return (
        f"On {date} {rng.choice(_CARRIERS)} brought {rng.randrange(2, 90)} {rng.choice(_GOODS)} "
        f"to {rng.choice(_CUSTOMERS)}, order {order}. {rng.choice(_REMARKS)}"
    )


_DELIVERY = strict_object(
    {
        "order": {"type": "string", "pattern": "^[A-D][0-9]{5}$"},
        "date": {"type": "string", "pattern": "^20[0-9]{2}-[0-9]{2}-[0-9]{2}$"},
        "carrier": {"type": "string", "pattern": "^[A-Za-z ]{1,24}$"},
        "customer": {"type": "string", "pattern": "^[A-Za-z ]{1,32}$"},
        "goods": {"type": "string", "pattern": "^[a-z ]{1,24}$"},
        "quantity": {"type": "integer", "minimum": 1, "maximum": 999},
    }
)
