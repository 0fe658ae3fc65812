"""From the tree of a regular expression to an expression over bytes.

Anchors are exact at any position: a part is translated for each of the four cases of text before
it or not and text after it or not (an ``Anchor`` holds only without text), and the empty text of a
part is separated from others, as only these put text beside other parts. Parts without anchors,
nearly all, are translated once and directly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from app.constraint.cached_method import cached_method
from app.constraint.language.codepoints import CHARACTERS, Ranges
from app.constraint.language.expressions import Expression, ExpressionPool
from app.constraint.regex.lookaround import Continuations, atoms
from app.constraint.regex.syntax import Alternatives, Anchor, Characters, Node, Repeated, Sequence


@dataclass(frozen=True, slots=True)
class _Language:
    """A language, and the same without the empty string."""

    full: Expression
    nonempty: Expression


class Lowering:
    """Translates trees into ``pool``; ``spell`` gives the bytes of one character of a set.

    If dialects differ, the texts are those that match in every dialect; with ``loose`` those that
    match in any of them, whose complement matches in none. ``loose`` requires a tree without
    ``repeats_anchors``.
    """

    def __init__(
        self, pool: ExpressionPool, spell: Callable[[Ranges], Expression], *, loose: bool = False
    ) -> None:
        self.pool = pool
        self._spell = spell
        self.loose = loose

    @cached_method
    def whole(self, node: Node) -> Expression:
        """The texts that ``node`` matches from end to end."""
        if not (node.looks or (self.loose and node.anchored)):
            return self._at(node, first=True, last=True).full
        return Continuations(self, atoms(node)).whole(node)

    @cached_method
    def search(self, node: Node) -> Expression:
        """The texts with a match of ``node`` anywhere, as for the keyword ``pattern``."""
        anything = Repeated(Characters(CHARACTERS, CHARACTERS), 0, None)
        return self.whole(Sequence((anything, node, anything)))

    @property
    def anything(self) -> Expression:
        """Any text."""
        return self.pool.repeat(self.character(CHARACTERS))

    @cached_property
    def opposite(self) -> Lowering:
        """The loose lowering of a strict one, and vice versa."""
        other = Lowering(self.pool, self._spell, loose=not self.loose)
        other.opposite = self
        return other

    @cached_method
    def _at(self, node: Node, *, first: bool, last: bool) -> _Language:
        """The matches of ``node`` without text before (``first``) or after (``last``) it."""
        if not node.anchored:
            return _Language(self.plain(node), self.nonempty(node))
        pool = self.pool
        if isinstance(node, Anchor):
            holds = last if node.at_end else first
            return _Language(pool.epsilon if holds else pool.empty, pool.empty)
        if isinstance(node, Alternatives):
            options = [self._at(option, first=first, last=last) for option in node.options]
            return _Language(
                pool.union(option.full for option in options),
                pool.union(option.nonempty for option in options),
            )
        if isinstance(node, Repeated):
            return self._repeated_at(node, first=first, last=last)
        assert isinstance(node, Sequence)
        nothing = _Language(pool.epsilon, pool.empty)
        rest, rest_after_text = nothing, nothing
        for part in reversed(node.parts):
            before = rest_after_text
            rest_after_text = self._join(part, before, before, first=False, last=last)
            if first:
                rest = self._join(part, rest, before, first=True, last=last)
            else:
                rest = rest_after_text
        return rest

    def _join(
        self, part: Node, rest: _Language, after_text: _Language, *, first: bool, last: bool
    ) -> _Language:
        """``part`` and then ``rest``, which is ``after_text`` if ``part`` is not empty."""
        pool = self.pool
        beside_text = self._at(part, first=first, last=False)
        alone = self._at(part, first=first, last=last)
        if not part.anchored and rest == after_text:
            full = pool.concatenate(alone.full, rest.full)
            if not pool.nullable[alone.full]:
                return _Language(full, full)
            with_part = pool.concatenate(alone.nonempty, rest.full)
            return _Language(full, pool.union((with_part, rest.nonempty)))
        parts = []
        if pool.nullable[beside_text.full]:
            parts.append(rest.nonempty)
        if pool.nullable[after_text.full]:
            parts.append(alone.nonempty)
        parts.append(pool.concatenate(beside_text.nonempty, after_text.nonempty))
        nonempty = pool.union(parts)
        nullable = pool.nullable[alone.full] and pool.nullable[rest.full]
        if nonempty == rest.nonempty and nullable == pool.nullable[rest.full]:
            return rest
        return _Language(pool.optional(nonempty) if nullable else nonempty, nonempty)

    def _repeated_at(self, node: Repeated, *, first: bool, last: bool) -> _Language:
        """Split by the number of rounds that match text: none, one, or two and more."""
        pool, low, high = self.pool, node.low, node.high
        alone = self._at(node.body, first=first, last=last)
        begin = self._at(node.body, first=first, last=False)
        middle = self._at(node.body, first=False, last=False)
        end = self._at(node.body, first=False, last=last)
        free_round = pool.nullable[begin.full] or pool.nullable[end.full]
        options = []
        if (high is None or high >= 1) and (low <= 1 or free_round):
            options.append(alone.nonempty)
        if high is None or high >= 2:
            free_round = free_round or pool.nullable[middle.full]
            fewest = 0 if free_round else max(low - 2, 0)
            rounds = pool.repeat(middle.nonempty, fewest, None if high is None else high - 2)
            options.append(pool.concatenate(begin.nonempty, rounds, end.nonempty))
        nonempty = pool.union(options)
        nullable = low == 0 or pool.nullable[alone.full]
        return _Language(pool.optional(nonempty) if nullable else nonempty, nonempty)

    @cached_method
    def plain(self, node: Node) -> Expression:
        """The texts of a node without anchors."""
        if isinstance(node, Characters):
            return self.character(node.possible if self.loose else node.members)
        if isinstance(node, Sequence):
            return self.pool.concatenate(*map(self.plain, node.parts))
        if isinstance(node, Alternatives):
            return self.pool.union(map(self.plain, node.options))
        assert isinstance(node, Repeated)
        return self.pool.repeat(self.plain(node.body), node.low, node.high)

    @cached_method
    def nonempty(self, node: Node) -> Expression:
        """The non-empty texts of a node without anchors."""
        pool, plain = self.pool, self.plain(node)
        if not pool.nullable[plain]:
            return plain
        if isinstance(node, Alternatives):
            return pool.union(map(self.nonempty, node.options))
        if isinstance(node, Repeated):
            return pool.repeat(self.nonempty(node.body), 1, node.high)
        assert isinstance(node, Sequence)
        nonempty, full = pool.empty, pool.epsilon
        for part in reversed(node.parts):  # all are nullable
            nonempty = pool.union((pool.concatenate(self.nonempty(part), full), nonempty))
            full = pool.concatenate(self.plain(part), full)
        return nonempty

    @cached_method
    def character(self, members: Ranges) -> Expression:
        """One character of ``members``."""
        return self._spell(members)
