"""Interface of the formats of tool calls."""

from __future__ import annotations

import hashlib
import secrets
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.answer.pieces import CallArguments, CallEnd, CallStart
from app.answer.tools import ToolUse
from app.core.composite import Part

_ID_LETTERS = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True)
class CallIds:
    """Ids of calls for a chat template: OpenAI's form, for templates that accept any id."""

    def new(self) -> str:
        """A new id for a call of an answer."""
        return f"call_{secrets.token_hex(12)}"

    def fitting(self, foreign: str, name: str, number: int) -> str:
        """A call's id in the form that the template accepts; deterministic.

        ``name``: the function's name; ``number``: the call's number in the conversation, from 0.
        """
        return foreign


@dataclass(frozen=True, slots=True)
class NumberedIds(CallIds):
    """Ids of the function's name and the index of the call in the conversation."""

    def fitting(self, foreign: str, name: str, number: int) -> str:
        return f"functions.{name}:{number}"


@dataclass(frozen=True, slots=True)
class ShortIds(CallIds):
    """Ids of a fixed number of letters and digits."""

    length: int

    def new(self) -> str:
        alphabet = string.ascii_letters + string.digits
        return "".join(secrets.choice(alphabet) for _ in range(self.length))

    def fitting(self, foreign: str, name: str, number: int) -> str:
        """The id itself if the template takes it; else a hash of it."""
        if len(foreign) == self.length and foreign.isascii() and foreign.isalnum():
            return foreign
        digest = hashlib.blake2b(foreign.encode(errors="replace"), digest_size=self.length).digest()
        return "".join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in digest)


CallPiece = CallStart | CallArguments | CallEnd


class ToolFormat(Protocol):
    """How a family of models writes calls."""

    @property
    def name(self) -> str:
        """Name for logs and error messages."""

    @property
    def trigger(self) -> str | None:
        """Mark that begins all calls after text, and that free text therefore cannot contain.

        None: an answer is either text or calls.
        """

    @property
    def also(self) -> Sequence[ToolFormat]:
        """Other ways to write calls behind free text, without a trigger."""

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
        """Strings, one of which begins the calls of these functions.

        Without a mark that only calls have, the name and the text after it are part of the lead,
        since ``{"name": "Ada"}`` may be an ordinary answer.
        """

    def heads(self) -> tuple[str, ...]:
        """Strings, one of which begins every text of calls, whatever function is called."""

    def calls(self, use: ToolUse) -> Part:
        """The texts of one call or several.

        Raises ``InvalidRequest`` for parameters that no object can satisfy by their type alone.
        """

    def reader(self, use: ToolUse, start: int) -> CallsReader:
        """A reader for such a text, or a prefix of one, at ``start`` in the answer."""

    def marks(self) -> Iterable[str]:
        """Marks that answers may contain: if one is a special token, it must be made writable."""


class CallsReader(Protocol):
    """Parses the text of one answer's calls."""

    def push(self, text: str) -> Sequence[CallPiece]:
        """The pieces that ``text``, the next chunk of any size, adds.

        Each call has a start, arguments in parts that join to one JSON object, and an end, in
        ascending ranges that do not overlap. The joined result does not depend on the chunks.
        """
