"""Rows of the store as its users see them. Needs no database package."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

VALIDATE, WRITE = -1, -2
"""Numbers of pieces without lines: work on the whole batch."""
RESPONSE, SCHEMA, PROGRAM = "response", "schema", "program"
"""Kinds of objects that are kept under an id."""
COUNTS = ("requests", "prompt_tokens", "completion_tokens", "leapt_tokens", "drafted_tokens")
"""Columns of usage that are counts."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a batch that this server has leased."""

    batch_id: str
    number: int
    offset: int
    size: int
    tries: int
    owner: str
    status: str
    """Status of the batch, whose endpoint and input file follow."""
    endpoint: str
    input_file_id: str

    @property
    def key(self) -> tuple[str, int]:
        return self.batch_id, self.number


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file whose contents are kept."""

    id: str
    purpose: str
    filename: str
    size: int
    seconds: int
    """Lifetime from its creation until it expires."""


def fresh_id(prefix: str) -> str:
    return f"{prefix}{int(time.time() * 1000):012x}{secrets.token_hex(8)}"
