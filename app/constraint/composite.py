"""Lowers a composite grammar to an expression: marks, free text, and the constraints inside it.

All parts are built in one pool, so marks of tools with a common beginning share a path, and forced
text is leapt over. Free text is well-formed UTF-8 (RFC 3629). Text without some strings is an
intersection with a complement: a state records how much of each string has just been written, as
in the automaton of Aho and Corasick (1975), and how much of a character.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.constraint.language.codepoints import CHARACTERS, utf8
from app.constraint.language.expressions import ByteSet, Expression, ExpressionPool, Kind
from app.constraint.language.rewriting import unspelled
from app.constraint.language.rows import Rows
from app.constraint.limits import Limits
from app.core.arguments import Arguments
from app.core.composite import Either, FixedText, FreeText, NotStarting, Part, Repeated, Series
from app.core.errors import (
    ConstraintError,
    ConstraintTooComplex,
    InvalidSchema,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex

Leaf = JsonSchema | JsonObject | Regex | Choice | Grammar | Arguments

_MOST_PARTS = 20_000
_MOST_MARK_BYTES = 100_000
"""Maximum length of all strings that are excluded from free text or from the start of parts."""
_UNROLLING_WORK = 1_000_000
"""Steps of work for excluding the beginnings of parts: a fraction of a second."""
_UNBOUNDED_TIMES = 100
"""Count assumed for an unbounded repetition that contains other repetitions."""


def lower_composite(
    pool: ExpressionPool, root: Part, limits: Limits, leaf: Callable[[Leaf], Expression]
) -> Expression:
    """The texts of ``root``; ``leaf`` builds the parts that are specifications themselves.

    Raises ``UnsupportedSchema`` for text that the tokenizer cannot spell,
    ``ConstraintTooComplex`` for too many parts, nested counts whose product exceeds
    ``limits.nested_counts``, or too much excluded text, ``InvalidSchema`` for text that is not
    UTF-8, and the errors of ``leaf``.
    """
    lowering = _Lowering(pool, limits, leaf)
    lowering.check_size(root)
    lowering.check_counts(root)
    return lowering.lower(root)


class _Lowering:
    """Lowers one composite grammar. A leaf that comes again is built once."""

    def __init__(
        self, pool: ExpressionPool, limits: Limits, leaf: Callable[[Leaf], Expression]
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._build_leaf = leaf
        self._leaves: dict[str, Expression] = {}
        self._rows = Rows(pool)
        self._rows.allow(_UNROLLING_WORK)

    def check_size(self, root: Part) -> None:
        marks, count, waiting = 0, 0, [root]
        while waiting:
            part = waiting.pop()
            waiting.extend(_children(part))
            count += 1
            if isinstance(part, FreeText):
                marks += sum(map(len, (*part.without, *part.not_ending)))
            elif isinstance(part, NotStarting):
                marks += sum(map(len, part.prefixes))
            if count > _MOST_PARTS:
                raise ConstraintTooComplex(f"more than {_MOST_PARTS} parts in a structure")
            if marks > _MOST_MARK_BYTES:
                raise ConstraintTooComplex(
                    f"more than {_MOST_MARK_BYTES} characters of excluded text"
                )

    def check_counts(self, part: Part) -> int:
        """The largest product of the counts of nested repetitions; raises if it is too large."""
        inside = max(map(self.check_counts, _children(part)), default=1)
        if not isinstance(part, Repeated):
            return inside
        unbounded = _UNBOUNDED_TIMES if inside > 1 else 1
        times = unbounded if part.at_most is None else part.at_most
        product = inside * max(times, part.at_least, 1)
        if product > self._limits.nested_counts:
            raise ConstraintTooComplex(
                "nested repetitions in a structure: their counts multiply to more than "
                f"{self._limits.nested_counts}"
            )
        return product

    def lower(self, part: Part) -> Expression:
        pool = self._pool
        match part:
            case FixedText(text):
                return pool.literal(self._spelled(text))
            case FreeText(without, not_ending):
                inside = pool.one_of(map(_encoded, without))
                at_end = pool.one_of(map(_encoded, not_ending))
                excluded = [
                    pool.concatenate(pool.everything, inside, pool.everything),
                    pool.concatenate(pool.everything, at_end),
                ]
                any_text = pool.repeat(utf8(pool, CHARACTERS))
                return pool.intersect((any_text, *map(pool.complement, excluded)))
            case Series(parts):
                return pool.concatenate(*map(self.lower, parts))
            case Either(parts):
                return pool.union(list(map(self.lower, parts)))
            case Repeated():
                return self._repeated(part)
            case NotStarting(inner, prefixes):
                return self._marked_not_starting(self.lower(inner), set(map(_encoded, prefixes)))
        key = part.cache_key()
        if key not in self._leaves:
            self._leaves[key] = self._leaf(part)
        return self._leaves[key]

    def _leaf(self, part: Leaf) -> Expression:
        """Build a leaf. Errors name its subject; a leaf with a subject must not be empty."""
        subject = part.subject if isinstance(part, JsonSchema | Arguments) else ""
        noted = set(self._pool.inexact)
        try:
            built = self._build_leaf(part)
            if subject and built == self._pool.empty:
                raise UnsatisfiableSchema
        except ConstraintError as error:
            raise error.about(subject) from None
        if subject:
            self._pool.named[subject] = built
            notes = self._pool.inexact
            self._pool.inexact = {
                each if each in noted else replace(each, subject=subject): None for each in notes
            }
        return built

    def _repeated(self, part: Repeated) -> Expression:
        pool, low, high = self._pool, part.at_least, part.at_most
        inner = self.lower(part.part)
        if not part.separator or (high is not None and high < max(low, 1)):
            return pool.repeat(inner, low, high)
        again = pool.concatenate(pool.literal(self._spelled(part.separator)), inner)
        some = pool.concatenate(inner, pool.repeat_after_one(again, low, high))
        return some if low else pool.optional(some)

    def _marked_not_starting(self, expression: Expression, prefixes: set[bytes]) -> Expression:
        """``_not_starting``, keeping a mark that is around the whole text."""
        pool = self._pool
        if pool.kinds[expression] != Kind.MARKED or pool.operands[expression][1] >= 0:
            return self._not_starting(expression, prefixes)
        inner, mark = pool.operands[expression]
        return pool.marked(self._not_starting(inner, prefixes), mark)

    def _spelled(self, text: str) -> bytes:
        """``text`` in UTF-8. Raises ``UnsupportedSchema`` if the tokenizer cannot spell it."""
        encoded = _encoded(text)
        if reason := unspelled(encoded, self._limits.missing):
            raise UnsupportedSchema("structure", "", f"{reason} in {text!r}")
        return encoded

    def _not_starting(self, expression: Expression, prefixes: set[bytes]) -> Expression:
        """The texts of ``expression`` that start with none of ``prefixes``.

        Intersections must not contain rules, so it is expanded: byte by byte along the prefixes,
        and where a text leaves them all, the derivative there. Recurses along a prefix.
        """
        if b"" in prefixes:
            return self._pool.empty
        if not prefixes:
            return expression
        self._check_no_hole(expression)
        pool, row = self._pool, self._rows.row(expression)
        nexts: dict[int, set[bytes]] = {}
        for prefix in prefixes:
            nexts.setdefault(prefix[0], set()).add(prefix[1:])
        watched: ByteSet = sum(1 << byte for byte in nexts)
        options = [pool.epsilon] if pool.nullable[expression] else []
        for bits, target in row:
            options.append(pool.concatenate(pool.byte(bits & ~watched), target))
            for byte, ends in nexts.items():
                if bits >> byte & 1:
                    rest = self._not_starting(target, ends)
                    options.append(pool.concatenate(pool.byte(1 << byte), rest))
        return pool.union(options)

    def _check_no_hole(self, expression: Expression) -> None:
        """Raise if ``expression`` begins with a hole, which cannot be expanded byte by byte."""
        pool, waiting = self._pool, [expression]
        while waiting:
            here = waiting.pop()
            kind, operand = pool.kinds[here], pool.operands[here]
            if kind == Kind.HOLE:
                reason = "an answer that begins with a quote from the prompt could be a tool call"
                raise UnsupportedSchema("x-verbatim", operand[0].pointer, reason)
            if kind == Kind.CONCATENATION:
                waiting.append(operand[0])
            elif kind == Kind.UNION or kind == Kind.INTERSECTION:
                waiting.extend(operand)


def _children(part: Part) -> tuple[Part, ...]:
    match part:
        case Series(parts) | Either(parts):
            return parts
        case Repeated(inner) | NotStarting(inner):
            return (inner,)
    return ()


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSchema("a text of the structure contains half of a surrogate pair") from error
