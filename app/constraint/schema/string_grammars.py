"""Strings that are texts of a grammar: the keyword ``x-grammar``."""

from __future__ import annotations

from typing import Any

from app.constraint.cached_method import cached_method
from app.constraint.grammar.lowering import Spelling, lower
from app.constraint.grammar.rules import parse as parse_grammar
from app.constraint.json.text import JsonText
from app.constraint.language.expressions import Expression
from app.constraint.regex.lowering import Lowering
from app.constraint.regex.parser import parse_keyword
from app.constraint.schema.document import Node
from app.constraint.schema.keywords import GRAMMAR
from app.core.errors import ConstraintError, InvalidSchema, UnsupportedSchema


class StringGrammars:
    """Lowers the grammars of strings into the pool of ``text``, a character in one spelling each.

    ``x-grammar`` is a grammar's text in GBNF or Lark's notation, distinguished as ``Grammar`` does,
    or ``{"syntax": "lark" | "gbnf" | "regex", "definition": text}``. A regular expression matches
    from end to end.
    """

    def __init__(self, text: JsonText, spelling: Spelling | None = None) -> None:
        """``spelling``: bytes of the characters; None: as in strings of ``text``."""
        self._text = text
        self._spelling = spelling or Spelling(
            characters=text.spell, text=lambda written: text.spelled(written.decode())
        )

    @cached_method
    def content(self, node: Node) -> Expression | None:
        """The text between the quotes; None if ``node`` has no grammar.

        Raises ``InvalidSchema``, ``UnsupportedSchema``, ``UnsatisfiableSchema`` or
        ``ConstraintTooComplex``.
        """
        asked = node.schema.get(GRAMMAR)
        if asked is None:
            return None
        pointer = node.pointer_to(GRAMMAR)
        if self._text.levels:
            reason = "not supported beside unlisted items that must be unique (uniqueItems)"
            raise UnsupportedSchema(GRAMMAR, pointer, reason)
        if isinstance(asked, str):
            asked = {"syntax": "auto", "definition": asked}
        try:
            return self._lowered(asked["syntax"], asked["definition"], pointer)
        except (InvalidSchema, UnsupportedSchema) as error:
            if error.pointer == pointer:
                raise
            reason = f"{error.pointer}: {error.reason.rstrip()}"
            if isinstance(error, InvalidSchema):
                refused: ConstraintError = InvalidSchema(reason, pointer=pointer)
            else:
                refused = UnsupportedSchema(GRAMMAR, pointer, reason)
            raise refused.at(line=error.line, column=error.column) from None

    def _lowered(self, syntax: str, definition: str, pointer: str) -> Expression:
        pool, limits = self._text.pool, self._text.limits
        if syntax == "regex":
            tree = parse_keyword(definition, limits, GRAMMAR, pointer)
            return Lowering(pool, self._spelling.characters).whole(tree)

        def inline_json(schema: Any) -> Expression:
            raise UnsupportedSchema(GRAMMAR, pointer, "%json stands for a value, not for a string")

        rules = parse_grammar(definition, syntax, limits)
        return lower(pool, rules, limits, inline_json, self._spelling)
