"""LMSYS's character and city sheets, and similar questions with other constraints or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.requests import Pattern, Request, Schema
from loadtest.schemas import distinct
from loadtest.tasks import CHARACTER, CHARACTER_PROMPT, CHARACTERS, CITIES, CITY, CITY_PROMPT
from loadtest.workloads.base import DEFAULT_MAX_TOKENS


@dataclass(frozen=True, slots=True)
class Sheet:
    """A question with one schema; names rotate."""

    name: str
    prompt: str
    names: Sequence[str]
    schema: Mapping[str, Any]
    always_fresh: bool = False

    def request(self, number: int, nonce: str) -> Request:
        return Request(
            self.name,
            _ask(self.prompt.format(self.names[number % len(self.names)])),
            Schema(distinct(self.schema, nonce)),
            DEFAULT_MAX_TOKENS,
        )


@dataclass(frozen=True, slots=True)
class FreeText:
    """The character prompts without a constraint; of fixed length if the server supports it."""

    name: str
    max_tokens: int
    always_fresh: bool = False

    def request(self, number: int, nonce: str) -> Request:
        prompt = CHARACTER_PROMPT.format(CHARACTERS[number % len(CHARACTERS)])
        return Request(self.name, _ask(prompt), None, self.max_tokens, exact_length=True)


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A question with a regular expression as constraint."""

    name: str
    always_fresh: bool = False

    def request(self, number: int, nonce: str) -> Request:
        place = CITIES[number % len(CITIES)]
        pattern = r"Latitude -?[0-9]{1,2}\.[0-9]{4}, longitude -?[0-9]{1,3}\.[0-9]{4}"
        return Request(self.name, _ask(f"Where is {place}?"), Pattern(pattern + nonce), 64)


def character(name: str, *, always_fresh: bool = False) -> Sheet:
    return Sheet(name, CHARACTER_PROMPT, CHARACTERS, CHARACTER, always_fresh)


def city(name: str) -> Sheet:
    return Sheet(name, CITY_PROMPT, CITIES, CITY)


def _ask(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]
