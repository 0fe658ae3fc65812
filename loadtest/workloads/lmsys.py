"""LMSYS's character and city sheets, and free text of the same questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.requests import Request, Schema
from loadtest.schemas import renamed
from loadtest.tasks import CHARACTER, CHARACTERS, CITIES, CITY
from loadtest.workloads.base import DEFAULT_MAX_TOKENS

_CHARACTER_PROMPT = "Please fill in the character sheet of {}."
_CITY_PROMPT = "Please fill in the facts about the city of {}."


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
            Schema(renamed(self.schema, nonce) if nonce else self.schema),
            DEFAULT_MAX_TOKENS,
        )


@dataclass(frozen=True, slots=True)
class FreeText:
    """The characters' prompts without a constraint; of one length where the server lets us say."""

    name: str
    max_tokens: int
    always_fresh: bool = False

    def request(self, number: int, nonce: str) -> Request:
        prompt = _CHARACTER_PROMPT.format(CHARACTERS[number % len(CHARACTERS)])
        return Request(self.name, _ask(prompt), None, self.max_tokens, exact_length=True)


def character(name: str, *, always_fresh: bool = False) -> Sheet:
    return Sheet(name, _CHARACTER_PROMPT, CHARACTERS, CHARACTER, always_fresh)


def city(name: str) -> Sheet:
    return Sheet(name, _CITY_PROMPT, CITIES, CITY)


def _ask(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]
