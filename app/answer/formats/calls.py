"""What a format of tool calls is."""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.answer.pieces import CallArguments, CallEnd, CallStart
from app.answer.tools import ToolUse
from app.core.composite import Part

_PLAIN_ID = re.compile(r"[a-zA-Z0-9]+")
_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True)
class CallIds:
    """The ids of one chat template. These have OpenAI's form, and the template takes any."""

    def new(self) -> str:
        """One for a call of an answer."""
        return f"call_{secrets.token_hex(12)}"

    def fitting(self, foreign: str, name: str, number: int) -> str:
        """The id of a call in the conversation as the template takes it, always the same.

        ``name``: of the function; ``number``: of the call among all of the conversation, from 0.
        """
        return foreign


@dataclass(frozen=True, slots=True)
class NumberedIds(CallIds):
    """The function's name, and the number of the call in the conversation."""

    def fitting(self, foreign: str, name: str, number: int) -> str:
        return f"functions.{name}:{number}"


@dataclass(frozen=True, slots=True)
class ShortIds(CallIds):
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


CallPiece = CallStart | CallArguments | CallEnd


class ToolFormat(Protocol):
    """How a family of models writes calls."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def trigger(self) -> str | None:
        """Calls may follow text, and this is what text cannot hold: every text of calls begins
        with it.

        None: an answer is either text or calls.
        """

    @property
    def parallel(self) -> bool:
        """Whether an answer may have several calls."""

    @property
    def native(self) -> bool:
        """Whether the chat template shows tools and calls; else ``prompt`` writes them out."""

    @property
    def in_json(self) -> bool:
        """Whether arguments stand in the answer as JSON."""

    @property
    def ids(self) -> CallIds:
        """Ids that the chat template takes."""

    def leads(self, names: Iterable[str]) -> tuple[str, ...]:
        """The strings of which one begins the calls of these functions.

        Where text and calls share no mark that only calls have, the name and what follows it are
        part of the lead: ``{"name": "Ada"}`` is an answer like any other.
        """

    def heads(self) -> tuple[str, ...]:
        """What all texts of calls begin with, whatever is called: one of these strings."""

    def calls(self, use: ToolUse) -> Part:
        """The texts of one call or several.

        Raises ``InvalidRequest`` for parameters that no object can satisfy by their type alone.
        """

    def reader(self, use: ToolUse, start: int) -> CallsReader:
        """Parse such a text, or the beginning of one; it starts at ``start`` in the answer."""

    def marks(self) -> Iterable[str]:
        """Marks that an answer may hold: where one is a special token, it has to be writable."""


class CallsReader(Protocol):
    """Takes the text of one answer's calls apart."""

    def push(self, text: str) -> Sequence[CallPiece]:
        """What ``text`` adds, which comes in chunks of any size.

        Of each call: its start, its arguments in parts that join to one JSON object, its end.
        Their places ascend and do not overlap. Joined, they do not depend on the chunks.
        """
