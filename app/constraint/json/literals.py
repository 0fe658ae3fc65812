"""JSON's values as literals of another notation: see ``app.core.literals``."""

from __future__ import annotations

from typing import Any

from app.constraint.json.text import JsonText
from app.constraint.json.whitespace import Whitespace
from app.constraint.language.codepoints import (
    CHARACTERS,
    Ranges,
    common,
    negate,
    ranges,
    single,
    utf8,
)
from app.constraint.language.expressions import Expression, ExpressionPool, Notation
from app.constraint.limits import Limits
from app.core.errors import UnsupportedSchema
from app.core.literals import NOT_IN_NAMES, Literals

_QUOTES = single(0x22, 0x27)
_RESERVED = ranges([(0, 0x20), (0xD800, 0xDFFF), *((ord(c), ord(c)) for c in NOT_IN_NAMES)])


class LiteralText(JsonText):
    """Builds values in ``notation``: one text for each."""

    def __init__(
        self,
        pool: ExpressionPool,
        limits: Limits,
        notation: Literals,
        *,
        levels: bool = False,
        apart: bool = True,
    ) -> None:
        whitespace = Whitespace(notation.comma.encode(), notation.colon.encode())
        super().__init__(pool, limits, whitespace, levels=levels, apart=apart)
        self.notation = notation

    @property
    def form(self) -> Literals:
        return self.notation

    @property
    def notation_of_names(self) -> Notation:
        notation = self.notation
        return Notation(notation.quote.encode(), notation.escaped, notation.bare_names)

    def spell(self, members: Ranges) -> Expression:
        if not self.notation.escaped:
            return utf8(self.pool, common(members, CHARACTERS))
        if self.notation.has_json_strings:
            return super().spell(members)
        quotes = common(members, _QUOTES)
        spelled = [self.spelled(chr(code)) for first, last in quotes for code in (first, last)]
        others = super().spell(common(members, negate(_QUOTES)))
        return self.pool.union((others, *map(self.pool.literal, dict.fromkeys(spelled))))

    def spell_freely(self, members: Ranges) -> Expression:
        freely = self.notation.has_json_strings
        return super().spell_freely(members) if freely else self.spell(members)

    def spelled(self, value: str) -> bytes:
        return self.notation.content(value).encode(errors="surrogatepass")

    def read(self, content: bytes) -> str:
        if not self.notation.escaped:
            return content.decode()
        if self.notation.quote == "'":
            content = content.replace(b"\\'", b"'").replace(b'"', b'\\"')
        return super().read(content)

    def written(self, value: Any, depth: int = 0) -> bytes:
        return self.notation.written(value).encode(errors="surrogatepass")

    def quoted(self, content: Expression) -> Expression:
        pool, quote = self.pool, self.pool.literal(self.notation.quote.encode())
        if not self.notation.escaped:
            held = pool.concatenate(pool.everything, quote, pool.everything)
            content = pool.intersect((content, pool.complement(held)))
        return pool.concatenate(quote, content, quote)

    def member(self, name: str, value: Expression) -> Expression:
        if self.notation.bare_names:
            return self.named(name, self.notation.colon, value)
        return self.pool.after_text(self.written(name) + self.whitespace.colon, value)

    def free_name(self, content: Expression | None) -> Expression:
        return self.bare_name(content) if self.notation.bare_names else super().free_name(content)

    def named(self, name: str, equals: str, value: Expression) -> Expression:
        """A member whose ``name`` is written without quotes."""
        if not self.notation.can_name(name):
            reason = f"this model writes names without quotes and cannot write {name!r}"
            raise UnsupportedSchema("properties", "/properties", reason)
        return self.pool.after_text((name + equals).encode(), value)

    def bare_name(self, content: Expression | None) -> Expression:
        """A name with the ``content`` that needs no quotes; None for any such name."""
        names = self.pool.repeat(utf8(self.pool, negate(_RESERVED)), 1)
        return names if content is None else self.pool.intersect((content, names))
