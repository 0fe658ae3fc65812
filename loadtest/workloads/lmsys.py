"""LMSYS's character and city sheets, and free text of the same questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.requests import Request, Schema
from loadtest.schemas import distinct
from loadtest.tasks import CHARACTER, CHARACTER_PROMPT, CHARACTERS, CITIES, CITY, CITY_PROMPT
from loadtest.workloads.base import DEFAULT_MAX_TOKENS


@dataclass(frozen=True, slots=True)
class Sheet:
    """One schema for names in rotation."""

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
    """The characters' prompts without a constraint; of one length where the server lets us say."""

    name: str
    max_tokens: int
    always_fresh: bool = False

    def request(self, number: int, nonce: str) -> Request:
        prompt = CHARACTER_PROMPT.format(CHARACTERS[number % len(CHARACTERS)])
        return Request(self.name, _ask(prompt), None, self.max_tokens, exact_length=True)


def character(name: str, *, always_fresh: bool = False) -> Sheet:
    return Sheet(name, CHARACTER_PROMPT, CHARACTERS, CHARACTER, always_fresh)


def city(name: str) -> Sheet:
    return Sheet(name, CITY_PROMPT, CITIES, CITY)


def _ask(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]
