"""Strings with lengths, patterns and formats, and without the texts that negations exclude."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from app.constraint.cached_method import cached_method
from app.constraint.formats import loose_format, strict_format
from app.constraint.grammar.lowering import Spelling, in_utf8, lower
from app.constraint.grammar.rules import parse as parse_grammar
from app.constraint.json.text import JsonText
from app.constraint.language.codepoints import CHARACTERS, utf8
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import Expression, ExpressionPool, Kind
from app.constraint.language.nodes import bytes_of
from app.constraint.regex import syntax
from app.constraint.regex.lookaround import repeats_anchors
from app.constraint.regex.lowering import Lowering
from app.constraint.regex.parser import parse_keyword
from app.constraint.schema.document import Goal, Node
from app.constraint.schema.keywords import (
    GRAMMAR,
    NOT_BESIDE_GRAMMAR,
    NOT_ENUM,
    NOT_FORMAT,
    NOT_PATTERN,
    VERBATIM,
    counts,
    verbatim_source,
)
from app.core.errors import ConstraintError, ConstraintTooComplex, InvalidSchema, UnsupportedSchema
from app.core.verbatim import Hole, Source

_COMPARISON_WORK = 200_000
"""Maximum steps of work to compare two formats."""


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Characters a string may have; ``high`` None is without bound."""

    low: int
    high: int | None

    def admit_all(self, node: syntax.Node) -> bool:
        """Whether every match of ``node`` is within the bounds."""
        if self.high is not None and (node.longest is None or node.longest > self.high):
            return False
        return node.shortest >= self.low

    def admit(self, value: str) -> bool:
        return self.low <= len(value) and (self.high is None or len(value) <= self.high)


@dataclass(slots=True)
class _Restrictions:
    """Combined restrictions on a string, with patterns and formats as trees."""

    lengths: _Lengths
    patterns: list[syntax.Node] = field(default_factory=list)
    """Patterns that must match somewhere."""
    wholes: list[syntax.Node] = field(default_factory=list)
    """Patterns that must match from end to end."""
    not_patterns: list[syntax.Node] = field(default_factory=list)
    not_wholes: list[syntax.Node] = field(default_factory=list)
    not_values: set[str] = field(default_factory=set)
    verbatim: Node | None = None
    """The node that asks for a string of the prompt."""
    source: Source = field(default_factory=Source)

    @property
    def negative(self) -> bool:
        return bool(self.not_patterns or self.not_wholes or self.not_values)

    def required(self, reading: Lowering) -> list[Expression]:
        return [*map(reading.search, self.patterns), *map(reading.whole, self.wholes)]

    def excluded(self, reading: Lowering) -> list[Expression]:
        return [*map(reading.search, self.not_patterns), *map(reading.whole, self.not_wholes)]


class _Grammars:
    """Lowers grammars of strings into the pool of ``text``, a character in one spelling each.

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


class Strings:
    """Builds the strings that a set of subschemas admits, and checks single ones.

    A character of a pattern has one spelling, without an escape if JSON allows that. If only
    lengths are restricted, characters have all the spellings of JSON. If texts are excluded, or
    restrictions are combined, every character has one spelling: no excluded text is admitted in
    another spelling, and there are fewer states.
    """

    def __init__(self, text: JsonText) -> None:
        self._text = text
        self._pool = pool = text.pool
        self._freely = Lowering(pool, text.spell_freely)
        self._once = Lowering(pool, text.spell)
        self._raw = Lowering(pool, lambda members: utf8(pool, members))
        self._grammars = _Grammars(text)
        self._parsed: dict[str, syntax.Node] = {}
        self._met: Node | None = None

    @cached_property
    def _derivatives(self) -> Derivatives:
        return Derivatives(self._pool)

    @cached_method
    def build(self, nodes: Goal) -> Expression:
        """The strings that satisfy ``nodes``, with their quotes."""
        if len(nodes) == 1 and nodes[0].schema.keys().isdisjoint(NOT_BESIDE_GRAMMAR):
            derived = self._grammars.content(nodes[0])
            if derived is not None:
                return self._text.quoted(derived)
        facts = self._facts(nodes)
        self._note_inexact(nodes)
        if facts.verbatim is not None:
            return self._text.quoted(self._hole(facts, facts.verbatim))
        excludes = facts.negative or any(tree.looks for tree in facts.patterns)
        content = None if excludes else self._language(facts, self._freely)
        if content is None or self._pool.kinds[content] == Kind.INTERSECTION:
            content = self._language(facts, self._once)  # escapes would multiply its states
        return self._text.quoted(content)

    def content(self, nodes: Goal) -> Expression:
        """The strings that satisfy ``nodes``, without quotes and in one spelling: for object keys.

        May be intersected with complements of other contents.
        """
        facts = self._facts(nodes)
        if facts.verbatim is not None:
            raise _refused(facts.verbatim, "property names cannot be quotes from the prompt")
        return self._language(facts, self._once)

    def bare(self, nodes: Goal, excluded: Sequence[Expression]) -> Expression:
        """The strings that satisfy ``nodes`` as they are, in UTF-8, but those ``excluded``."""
        text = None
        if len(nodes) == 1 and nodes[0].schema.keys().isdisjoint(NOT_BESIDE_GRAMMAR):
            text = _Grammars(self._text, in_utf8(self._pool)).content(nodes[0])
            if text is not None and not self._pool.regular[text]:
                reason = "recursive grammars are not supported in strings without quotes"
                raise UnsupportedSchema(GRAMMAR, nodes[0].pointer_to(GRAMMAR), reason)
        if text is None:
            facts = self._facts(nodes)
            if facts.verbatim is not None:
                raise _refused(facts.verbatim, "not supported in strings without quotes")
            text = self._language(facts, self._raw, spell=str.encode)
        return self._pool.intersect((text, *map(self._pool.complement, excluded)))

    def listed(self, nodes: Goal, values: Sequence[str]) -> Expression:
        """``values``, with quotes; only quotes from the prompt, if ``nodes`` ask for those."""
        texts = self._pool.one_of(map(self._text.spelled, values))
        facts = self._facts(nodes)
        if facts.verbatim is not None:
            free = _Restrictions(_Lengths(0, None), verbatim=facts.verbatim, source=facts.source)
            texts = self._pool.intersect((self._hole(free, facts.verbatim), texts))
        return self._text.quoted(texts)

    def is_verbatim(self, nodes: Goal) -> bool:
        """Whether the string has to stand in the prompt."""
        return any(verbatim_source(node) for node in nodes)

    def key_pattern(self, node: Node, pattern: str, *, matches: bool = True) -> Expression:
        """Contents of keys, in one spelling, that match ``pattern`` in all dialects, or in none.

        The latter is a complement: intersect it with ``content(())``. ``node`` has the keyword
        ``patternProperties``, which errors name.
        """
        tree = self._parse(node, pattern, "patternProperties", negated=not matches)
        if matches:
            return self._once.search(tree)
        return self._pool.complement(self._once.opposite.search(tree))

    def key_matches(self, node: Node, pattern: str, name: str) -> bool | None:
        """Whether ``pattern`` matches ``name``; None where dialects disagree."""
        tree = self._parse(node, pattern, "patternProperties")
        if self._matches(self._raw.search(tree), name):
            return True
        return None if self._matches(self._raw.opposite.search(tree), name) else False

    def admit(self, nodes: Goal, value: str, *, loose: bool = False) -> bool:
        """Whether the string ``value`` satisfies ``nodes``.

        ``loose``: whether some validator may accept it. Then formats are ignored, and of two
        readings of a pattern the one that admits more counts.
        """
        facts, required, excluded = self._checks(nodes, loose)
        self._met = self._met or facts.verbatim
        if not facts.lengths.admit(value) or value in facts.not_values:
            return False
        return all(self._matches(part, value) for part in required) and not any(
            self._matches(part, value) for part in excluded
        )

    def take_met(self) -> Node | None:
        """The first ``x-verbatim`` that ``admit`` assumed to be satisfied since the last call."""
        met, self._met = self._met, None
        return met

    @cached_method
    def _checks(
        self, nodes: Goal, loose: bool
    ) -> tuple[_Restrictions, list[Expression], list[Expression]]:
        """Facts, and the expressions that a value's UTF-8 must match and must not match."""
        facts, raw = self._facts(nodes), self._raw
        if loose:
            patterns = map(raw.opposite.search, facts.patterns)
            return facts, [*patterns], [*map(raw.search, facts.not_patterns)]
        required, excluded = facts.required(raw), facts.excluded(raw.opposite)
        if excluded:  # what is not well-formed is read in different ways
            required.append(self._pool.repeat(raw.character(CHARACTERS)))
        return facts, required, excluded

    def _language(
        self, facts: _Restrictions, spelling: Lowering, spell: Callable[[str], bytes] | None = None
    ) -> Expression:
        """The contents of strings that ``facts`` describe; ``spell`` spells whole values."""
        pool, lengths = self._pool, facts.lengths
        if len(facts.patterns) == 1 and not facts.wholes and not facts.negative:
            fitted = _fit(facts.patterns[0], lengths)
            if fitted is not None:
                return spelling.whole(fitted)
        parts = facts.required(spelling)
        trees = [*(syntax.Sequence(tuple(_parts(p))) for p in facts.patterns), *facts.wholes]
        if not any(map(lengths.admit_all, trees)):
            character = spelling.character(CHARACTERS)
            if not parts or lengths.high is not None:
                parts.append(pool.repeat(character, lengths.low, lengths.high))
            else:  # this part is satisfied by any text that is long enough
                long_enough = pool.repeat(character, lengths.low, lengths.low)
                parts.append(pool.concatenate(long_enough, pool.everything))
        parts += map(pool.complement, facts.excluded(spelling.opposite))
        if facts.not_values:
            spell = spell or self._text.spelled
            parts.append(pool.complement(pool.one_of(map(spell, facts.not_values))))
        return pool.intersect(parts)

    def _matches(self, expression: Expression, value: str) -> bool:
        for byte in value.encode(errors="surrogatepass"):
            expression = self._step(expression, byte)
        return self._pool.nullable[expression]

    @cached_method
    def _step(self, expression: Expression, byte: int) -> Expression:
        row = self._derivatives.row(expression)
        return next((e for bits, e in row if bits >> byte & 1), self._pool.empty)

    def _facts(self, nodes: Goal) -> _Restrictions:
        facts = _Restrictions(_Lengths(*counts(nodes, "minLength", "maxLength")))
        beside = any(strict_format(node.schema.get("format", "")) for node in nodes)
        for node in nodes:
            schema = node.schema
            if GRAMMAR in schema:
                reason = "it must be the only keyword of a string, outside propertyNames and enums"
                raise UnsupportedSchema(GRAMMAR, node.pointer_to(GRAMMAR), reason)
            if "pattern" in schema:
                facts.patterns.append(self._parse(node, schema["pattern"]))
            if NOT_PATTERN in schema:
                facts.not_patterns.append(self._parse(node, schema[NOT_PATTERN], negated=True))
            format_tree = strict_format(schema["format"]) if "format" in schema else None
            if format_tree is not None:  # others are annotations
                facts.wholes.append(format_tree)
            if NOT_FORMAT in schema:
                facts.not_wholes.append(_other_format(node, schema[NOT_FORMAT], beside=beside))
            source = verbatim_source(node)
            if source is not None:
                if facts.verbatim is not None and facts.source.part != source.part:
                    raise _refused(node, "two of them in one string name different parts")
                facts.source = Source(source.part, source.words or facts.source.words)
                facts.verbatim = node
            not_values = schema.get(NOT_ENUM, ())
            facts.not_values.update(value for value in not_values if isinstance(value, str))
        return facts

    def _hole(self, facts: _Restrictions, node: Node) -> Expression:
        """The contents that are quotes from the prompt: a hole for a document to fill."""
        low, high = facts.lengths.low, facts.lengths.high
        free = self._language(facts, self._once)
        rows, finals = b"", b""
        if facts.patterns or facts.wholes or facts.negative:
            raw = self._language(facts, self._raw, spell=str.encode)
            rows, finals = self._table(raw, node)
        return self._pool.hole(Hole(facts.source, low, high, rows, finals, node.pointer), free)

    def _table(self, raw: Expression, node: Node) -> tuple[bytes, bytes]:
        """``Hole.pattern`` and ``Hole.finals`` of an expression over raw UTF-8."""
        states, most = {raw: 0}, self._text.limits.verbatim_states
        rows, waiting = array("h"), [raw]
        for expression in waiting:
            row = array("h", [-1]) * 256
            for bits, target in self._derivatives.live_row(expression):
                if target not in states:
                    states[target] = len(states)
                    waiting.append(target)
                for byte in bytes_of(bits):
                    row[byte] = states[target]
            if len(states) > most:
                raise ConstraintTooComplex(
                    f"a pattern with its length bounds has more than {most} states beside "
                    f"x-verbatim at {node.pointer or 'the root'}; length bounds alone cost none"
                )
            rows += row
        return rows.tobytes(), bytes(self._pool.nullable[each] for each in states)

    def _parse(
        self, node: Node, pattern: str, keyword: str = "pattern", *, negated: bool = False
    ) -> syntax.Node:
        known = self._parsed.get(pattern)
        if known is None:
            known = parse_keyword(pattern, self._text.limits, keyword, node.pointer_to(keyword))
            self._parsed[pattern] = known
        if negated and repeats_anchors(known):
            reason = "a pattern that repeats anchors cannot be negated"
            raise UnsupportedSchema(keyword, node.pointer_to(keyword), reason)
        return known

    def _note_inexact(self, nodes: Goal) -> None:
        """Note excluded formats that some validator may still see in an admitted text."""
        for node in nodes:
            other = node.schema.get(NOT_FORMAT)
            formats = [n.schema["format"] for n in nodes if "format" in n.schema] if other else []
            known = [name for name in formats if strict_format(name)]
            if known and not any(_is_refused_as(name, other) for name in known):
                reason = (
                    f"texts that are not {other!r} by the RFC are allowed; some validators accept "
                    f"more texts as {other!r}"
                )
                self._pool.inexact[node.inexact("format", reason)] = None


def _other_format(node: Node, name: str, *, beside: bool) -> syntax.Node:
    """The pattern of the format ``name`` to exclude: the RFC's own ``beside`` another format, else
    all that any validator accepts."""
    loose = loose_format(name)
    if loose is None:
        reason = f"the format {name} cannot be negated exactly"
        raise UnsupportedSchema("format", node.pointer_to("format"), reason)
    return (strict_format(name) if beside else None) or loose


@cache
def _is_refused_as(name: str, other: str) -> bool:
    """Whether each text of the format ``name`` that our pattern of ``other`` does not match is
    refused as ``other`` by every validator. Costs some 10 ms once."""
    strict, loose, excluded = strict_format(name), loose_format(other), strict_format(other)
    assert strict is not None
    assert loose is not None
    assert excluded is not None
    pool = ExpressionPool()
    every = Lowering(pool, lambda members: utf8(pool, members))
    texts = pool.intersect((every.whole(strict), every.opposite.whole(loose)))
    derivatives = Derivatives(pool)
    derivatives.allow(_COMPARISON_WORK)
    try:
        return not (
            derivatives.is_alive(texts)
            and derivatives.is_alive(
                pool.intersect((texts, pool.complement(every.whole(excluded))))
            )
        )
    except ConstraintTooComplex:
        return False


def _refused(node: Node, reason: str) -> UnsupportedSchema:
    return UnsupportedSchema(VERBATIM, node.pointer_to(VERBATIM), reason)


def _parts(pattern: syntax.Node) -> list[syntax.Node]:
    """The parts of ``pattern`` without the anchors at its ends; any text where one is missing."""
    parts: list[syntax.Node] = [pattern]
    if isinstance(pattern, syntax.Sequence):
        parts = list(pattern.parts)
    anything = syntax.Repeated(syntax.Characters(CHARACTERS, CHARACTERS), 0, None)
    parts = parts[1:] if _is_anchor(parts[:1], at_end=False) else [anything, *parts]
    return parts[:-1] if _is_anchor(parts[-1:], at_end=True) else [*parts, anything]


def _is_anchor(parts: list[syntax.Node], *, at_end: bool) -> bool:
    return any(isinstance(part, syntax.Anchor) and part.at_end is at_end for part in parts)


def _fit(pattern: syntax.Node, lengths: _Lengths) -> syntax.Node | None:
    """A tree for the matches of ``pattern`` that are within ``lengths``, by arithmetic.

    That is possible if all parts have a fixed length but at most one, which repeats something of
    fixed length: ``^[a-z]{2,}$``, ``^https://``. Otherwise None.
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
    nothing = syntax.Characters((), ())
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
