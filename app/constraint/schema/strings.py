"""Strings with lengths, patterns and formats."""

from __future__ import annotations

from dataclasses import dataclass

from app.constraint.codepoints import CHARACTERS, utf8
from app.constraint.derivatives import Derivatives
from app.constraint.expressions import Expression
from app.constraint.formats import LONGEST, NOT_REGULAR, PATTERNS
from app.constraint.json_text import JsonText, json_spelling_or_any
from app.constraint.limits import Limits
from app.constraint.regex import syntax
from app.constraint.regex.lowering import Lowering
from app.constraint.regex.parser import PatternError, PatternNotSupported, parse
from app.constraint.schema.document import Goal, Node
from app.core.errors import InvalidSchema, UnsupportedSchema


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Characters a string may have; ``high`` None is without bound."""

    low: int
    high: int | None

    def admit_all(self, node: syntax.Node) -> bool:
        """Whether whatever ``node`` matches is within."""
        if self.high is not None and (node.longest is None or node.longest > self.high):
            return False
        return node.shortest >= self.low


class Strings:
    """Builds the strings that a set of subschemas admits, and checks single ones."""

    def __init__(self, text: JsonText, limits: Limits) -> None:
        self._text = text
        self._pool = text.pool
        self._limits = limits
        self._spelled = Lowering(self._pool, lambda r: json_spelling_or_any(self._pool, r))
        self._raw = Lowering(self._pool, lambda members: utf8(self._pool, members))
        self._derivatives = Derivatives(self._pool)
        self._parsed: dict[str, syntax.Node] = {}

    def build(self, nodes: Goal) -> Expression:
        lengths = self._lengths(nodes)
        patterns, others = self._patterns(nodes), self._formats(nodes)
        if not patterns and not others:
            return self._text.string(lengths.low, lengths.high)
        if len(patterns) == 1 and not others:
            fitted = _fit(patterns[0], lengths)
            if fitted is not None:
                return self._text.quoted(self._spelled.whole(fitted))
        parts = [self._spelled.search(pattern) for pattern in patterns]
        parts += [self._spelled.whole(other) for other in others]
        within = [lengths.admit_all(node) for node in [*map(_searched, patterns), *others]]
        if not any(within):
            parts.append(self._pool.repeat(self._text.character, lengths.low, lengths.high))
        return self._text.quoted(self._pool.intersect(parts))

    def admit(self, nodes: Goal, value: str) -> bool:
        lengths = self._lengths(nodes)
        if len(value) < lengths.low or (lengths.high is not None and len(value) > lengths.high):
            return False
        parts = [self._raw.search(pattern) for pattern in self._patterns(nodes)]
        parts += [self._raw.whole(other) for other in self._formats(nodes)]
        return all(self._matches(part, value) for part in parts)

    def _matches(self, expression: Expression, value: str) -> bool:
        for byte in value.encode(errors="surrogatepass"):
            row = self._derivatives.row(expression)
            expression = next((e for bits, e in row if bits >> byte & 1), self._pool.empty)
        return self._pool.nullable[expression]

    def _lengths(self, nodes: Goal) -> _Lengths:
        lows = [int(node.schema["minLength"]) for node in nodes if "minLength" in node.schema]
        highs = [int(node.schema["maxLength"]) for node in nodes if "maxLength" in node.schema]
        return _Lengths(max(lows, default=0), min(highs, default=None))

    def _patterns(self, nodes: Goal) -> list[syntax.Node]:
        found = []
        for node in nodes:
            if "pattern" in node.schema:
                found.append(self._parse(node, node.schema["pattern"]))
        return found

    def _parse(self, node: Node, pattern: str) -> syntax.Node:
        known = self._parsed.get(pattern)
        if known is None:
            place = node.place("pattern")
            try:
                known = parse(pattern, self._limits)
            except PatternError as error:
                raise InvalidSchema(str(error), pointer=place) from error
            except PatternNotSupported as error:
                raise UnsupportedSchema("pattern", place, str(error)) from error
            self._parsed[pattern] = known
        return known

    def _formats(self, nodes: Goal) -> list[syntax.Node]:
        """What the known formats among ``nodes`` match; unknown ones are annotations."""
        found = []
        for node in nodes:
            name = node.schema.get("format")
            if name in NOT_REGULAR:
                raise UnsupportedSchema("format", node.place("format"), f"{name} is not regular")
            for table in (PATTERNS, LONGEST):
                if name in table:
                    found.append(parse(table[name], self._limits))
        return found


def _searched(pattern: syntax.Node) -> syntax.Node:
    """Without its anchors, and with any text where there is none: for lengths only."""
    return syntax.Sequence(tuple(_parts(pattern)))


def _parts(pattern: syntax.Node) -> list[syntax.Node]:
    parts: list[syntax.Node] = [pattern]
    if isinstance(pattern, syntax.Sequence):
        parts = list(pattern.parts)
    anything = syntax.Repeated(syntax.Characters(CHARACTERS), 0, None)
    parts = parts[1:] if _is_anchor(parts[:1], at_end=False) else [anything, *parts]
    if _is_anchor(parts[-1:], at_end=True):
        return parts[:-1]
    return [*parts, anything]


def _is_anchor(parts: list[syntax.Node], *, at_end: bool) -> bool:
    return any(isinstance(part, syntax.Anchor) and part.at_end is at_end for part in parts)


def _fit(pattern: syntax.Node, lengths: _Lengths) -> syntax.Node | None:
    """A tree for the matches of ``pattern`` that are within ``lengths``, by arithmetic.

    That is possible where all parts have one length but at most one, a repetition of something of
    one length: ``^[a-z]{2,}$``, ``^https://``. None elsewhere.
    """
    parts = _parts(pattern)
    if any(part.anchored for part in parts):
        return None
    varying = [index for index, part in enumerate(parts) if part.shortest != part.longest]
    if len(varying) > 1:
        return None
    fixed = sum(part.shortest for part in parts if part.shortest == part.longest)
    low = max(lengths.low - fixed, 0)
    high = None if lengths.high is None else lengths.high - fixed
    nothing = syntax.Characters(())
    if high is not None and high < 0:
        return nothing
    if not varying:
        return syntax.Sequence(tuple(parts)) if low == 0 else nothing
    part = parts[varying[0]]
    if not isinstance(part, syntax.Repeated) or part.body.shortest != part.body.longest:
        return syntax.Sequence(tuple(parts)) if low == 0 and high is None else None
    size = part.body.shortest
    fewest = max(part.low, -(-low // size))
    most = [n for n in (part.high, None if high is None else high // size) if n is not None]
    if most and min(most) < fewest:
        return nothing
    parts[varying[0]] = syntax.Repeated(part.body, fewest, min(most, default=None))
    return syntax.Sequence(tuple(parts))
