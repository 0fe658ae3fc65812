"""The constraints that a request may name, each by itself. See also ``app.core.composite``.

``kind`` is what metrics call it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

OnUnsupported = Literal["refuse", "relax"]
"""Handling of a request whose schema has a keyword that cannot be enforced."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """Answers are JSON values valid against ``schema`` (a parsed JSON Schema).

    ``close_objects``: where a schema says nothing about additional properties, forbid them.
    False follows the specification; the server closes them by default.
    ``whitespace``: ``"spaced"`` (as ``json.dumps`` writes), ``"compact"``, ``"flexible"`` (a little
    of it anywhere) or ``"indent:N"``.
    """

    kind: ClassVar = "schema"
    schema: Any
    close_objects: bool = False
    whitespace: str = "spaced"
    subject: str = ""
    """Subject of its errors, if it is one of several schemas: ``the function 'weather'``."""
    relax: bool = False
    """Whether to drop a keyword that cannot be enforced, with a warning, instead of refusing it."""
    _key: str = field(default="", init=False, repr=False, compare=False)
    """See ``cache_key``; "" until it is asked for."""

    def cache_key(self) -> str:
        """A text that is equal for specifications with the same language and order, and only then.

        Cached, since it takes 20 ms for a large schema: ``schema`` must not change afterwards.
        """
        if not self._key:
            head = f"schema{':relax' * self.relax}:{int(self.close_objects)}:{self.whitespace}"
            text = json.dumps(self.schema, separators=(",", ":"))
            object.__setattr__(self, "_key", f"{head}:{self.subject}:{text}")
        return self._key


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Answers are any JSON object (OpenAI's ``json_object`` mode)."""

    kind: ClassVar = "object"
    whitespace: str = "spaced"

    def cache_key(self) -> str:
        return f"object:{self.whitespace}"


@dataclass(frozen=True, slots=True)
class Regex:
    """Answers match ``pattern`` as a whole (ECMA-262 syntax, anchored at both ends)."""

    kind: ClassVar = "regex"
    pattern: str

    def cache_key(self) -> str:
        return "regex:" + self.pattern


@dataclass(frozen=True, slots=True)
class Choice:
    """Answers are exactly one of ``options``."""

    kind: ClassVar = "choice"
    options: Sequence[str]

    def cache_key(self) -> str:
        return "choice:" + json.dumps(list(self.options))


@dataclass(frozen=True, slots=True)
class Grammar:
    """Answers are texts of a context-free grammar.

    ``syntax``: ``"gbnf"`` (llama.cpp, from the rule ``root``), ``"lark"`` (a subset of Lark's, from
    ``start``), or ``"auto"``: a line that starts with ``name ::=`` makes it GBNF.
    """

    kind: ClassVar = "grammar"
    text: str
    syntax: str = "auto"

    def cache_key(self) -> str:
        return f"grammar:{self.syntax}:{self.text}"
