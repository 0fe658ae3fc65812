"""Ids of calls: those that the server makes, and foreign ones as a chat template takes them."""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from dataclasses import dataclass
from typing import Protocol

_PLAIN_ID = re.compile(r"[a-zA-Z0-9]+")
_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


class CallIds(Protocol):
    """The ids of one chat template."""

    def new(self) -> str:
        """One for a call of an answer."""

    def fitting(self, foreign: str, name: str, number: int) -> str:
        """The id of a call in the conversation as the template takes it, always the same.

        ``name``: of the function; ``number``: of the call among all of the conversation, from 0.
        """


@dataclass(frozen=True, slots=True)
class AnyIds:
    """In OpenAI's form; the template takes any."""

    def new(self) -> str:
        return f"call_{secrets.token_hex(12)}"

    def fitting(self, foreign: str, name: str, number: int) -> str:
        return foreign


@dataclass(frozen=True, slots=True)
class NumberedIds(AnyIds):
    """The function's name, and the number of the call in the conversation."""

    def fitting(self, foreign: str, name: str, number: int) -> str:
        return f"functions.{name}:{number}"


@dataclass(frozen=True, slots=True)
class ShortIds:
    """So many letters and digits."""

    length: int

    def new(self) -> str:
        alphabet = string.ascii_letters + string.digits
        return "".join(secrets.choice(alphabet) for _ in range(self.length))

    def fitting(self, foreign: str, name: str, number: int) -> str:
        """The id itself where the template takes it; else one made of it."""
        if len(foreign) == self.length and _PLAIN_ID.fullmatch(foreign):
            return foreign
        encoded = foreign.encode(errors="replace")
        digest = hashlib.blake2b(encoded, digest_size=self.length).digest()
        return "".join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in digest)
