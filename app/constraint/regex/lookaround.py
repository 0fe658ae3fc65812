"""Look-ahead and look-behind, translated together with the rest of the text.

``(?=B)`` before a rest C is the intersection of C with B followed by anything; ``(?!B)`` is that
with a complement. So a tree is translated from end to start, each part with its continuation: the
language of the text after it, up to the end. A look-behind sees one character. The characters that
look-behinds distinguish are partitioned into atoms, and a continuation has one language for each
atom that may come before it, and one for the start of the text.

Look-around inside repetitions is translated in two cases only: few rounds, which are written out,
and rounds of one character before the end of the text, ``((?!B).)*$``: the look-ahead is then
tested at every suffix of the text, so the result is a complement again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from app.constraint.language.codepoints import CHARACTERS, Ranges, common, negate, single
from app.constraint.language.expressions import Expression
from app.constraint.regex.syntax import (
    Alternatives,
    Anchor,
    Characters,
    Look,
    Node,
    Repeated,
    Sequence,
)

if TYPE_CHECKING:
    from app.constraint.regex.lowering import Lowering


MOST_ROUNDS = 64
"""Maximum rounds of repetitions around look-around, over all levels: they are written out."""
MOST_SETS = 6
"""Maximum different sets of characters in look-behinds of one pattern."""


def holds_behind(node: Node, context: Ranges | None, *, loose: bool) -> bool:
    """Whether a look-behind at ``node`` holds after a character of ``context`` (None: the start).

    ``context`` is an atom: each set of a look-behind contains all of it or nothing.
    """
    if isinstance(node, Characters):
        members = node.possible if loose else node.members
        return context is not None and _is_within(context, members)
    if isinstance(node, Anchor):
        return context is None
    options = node.options if isinstance(node, Alternatives) else ()
    return any(holds_behind(option, context, loose=loose) for option in options)


@lru_cache(maxsize=4096)
def _is_within(part: Ranges, members: Ranges) -> bool:
    return common(members, part) == part


def is_one_behind(node: Node) -> bool:
    """Whether ``node`` is allowed in a look-behind: one character, the start, or either."""
    if isinstance(node, Alternatives):
        return all(map(is_one_behind, node.options))
    return isinstance(node, Characters) or (isinstance(node, Anchor) and not node.at_end)


def atoms(node: Node) -> tuple[Ranges, ...]:
    """The partition of all characters by the sets of look-behinds in ``node``."""
    parts: list[Ranges] = [CHARACTERS]
    for members in sorted(sets_behind(node)):
        split = [(common(part, members), common(part, negate(members))) for part in parts]
        parts = [part for pair in split for part in pair if part]
    return tuple(parts)


def sets_behind(node: Node, *, behind: bool = False) -> set[Ranges]:
    """The sets of characters in look-behinds of ``node``."""
    if isinstance(node, Characters):
        return {node.members, node.possible} if behind else set()
    if isinstance(node, Look):
        return sets_behind(node.body, behind=behind or node.behind)
    return {found for below in _below(node) for found in sets_behind(below, behind=behind)}


def looks_behind(node: Node) -> bool:
    """Whether ``node`` depends on the text before it."""
    if isinstance(node, Anchor):
        return not node.at_end
    if isinstance(node, Look) and node.behind:
        return True
    return any(map(looks_behind, [node.body] if isinstance(node, Look) else _below(node)))


def first_untranslatable(node: Node, *, ends: bool = False) -> Node | None:
    """The first repetition whose look-around cannot be translated; None if there is none.

    ``ends``: whether ``node`` is directly before the end of the text.
    """
    if not node.looks:
        return _anchors_repeated(node)
    if isinstance(node, Look):
        return first_untranslatable(node.body)
    if isinstance(node, Repeated):
        few = node.high is not None and node.counts <= MOST_ROUNDS
        if few or (ends and tempered(node) is not None):
            return first_untranslatable(node.body)
        return node
    if isinstance(node, Alternatives):
        found = (first_untranslatable(option, ends=ends) for option in node.options)
        return next((one for one in found if one is not None), None)
    assert isinstance(node, Sequence)
    for part in reversed(node.parts):
        one = first_untranslatable(part, ends=ends)
        if one is not None:
            return one
        ends = isinstance(part, Anchor) and (part.at_end or ends)
    return None


def tempered(node: Repeated) -> tuple[tuple[Look, ...], Characters] | None:
    """The looks and the character of ``(?:(?!B).)*``; None for other repetitions."""
    parts = node.body.parts if isinstance(node.body, Sequence) else ()
    looks = tuple(part for part in parts[:-1] if isinstance(part, Look) and not looks_behind(part))
    if len(looks) < 1 or len(looks) != len(parts) - 1 or node.low > 1 or node.high is not None:
        return None
    return (looks, parts[-1]) if isinstance(parts[-1], Characters) else None


def repeats_anchors(node: Node) -> bool:
    """Whether there are anchors inside many rounds of a repetition, in a checked tree."""
    return not node.looks and _anchors_repeated(node) is not None


def _anchors_repeated(node: Node) -> Node | None:
    """The first repetition of many rounds with anchors inside; None if there is none."""
    many = isinstance(node, Repeated) and (node.high is None or node.counts > MOST_ROUNDS)
    if many and node.anchored:
        return node
    return next((one for one in map(_anchors_repeated, _below(node)) if one is not None), None)


def _below(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Sequence):
        return node.parts
    if isinstance(node, Alternatives):
        return node.options
    return (node.body,) if isinstance(node, Repeated) else ()


Continuation = tuple[Expression, ...]
"""The language of the rest of the text: at the start of the text, then after each atom."""


class Continuations:
    """Translates with ``lowering``; look-behinds do not distinguish characters of one atom."""

    def __init__(self, lowering: Lowering, atoms: tuple[Ranges, ...]) -> None:
        self._lowering = lowering
        self._pool = lowering.pool
        self._atoms = atoms

    def whole(self, node: Node) -> Expression:
        """The texts that ``node`` matches from end to end."""
        return self.before(node, self._same(self._pool.epsilon))[0]

    def before(self, node: Node, rest: Continuation) -> Continuation:
        """The texts that consist of a match of ``node`` and then ``rest``."""
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                rest = self.before(part, rest)
            return rest
        if isinstance(node, Alternatives):
            return self._any([self.before(option, rest) for option in node.options])
        if isinstance(node, Anchor):
            return self._anchor(node, rest)
        if isinstance(node, Look):
            return self._look(node, rest)
        if not node.anchored:
            return self._text(node, rest)
        assert isinstance(node, Repeated)
        return self._tempered(node, rest) if node.high is None else self._rounds(node, rest)

    def _same(self, expression: Expression) -> Continuation:
        return (expression,) * (1 + len(self._atoms))

    def _any(self, rests: list[Continuation]) -> Continuation:
        return tuple(map(self._pool.union, zip(*rests, strict=True)))

    def _anchor(self, node: Anchor, rest: Continuation) -> Continuation:
        if node.doubtful and not self._lowering.loose:
            return self._same(self._pool.empty)
        if node.at_end:
            return tuple(self._ended(one) for one in rest)
        return (rest[0], *self._same(self._pool.empty)[1:])

    def _ended(self, rest: Expression) -> Expression:
        """The part of a rest that ``$`` allows; some dialects allow a line feed after it."""
        pool = self._pool
        nothing = self._nothing(rest)
        return pool.union((nothing, self._line_feed(rest))) if self._lowering.loose else nothing

    def _line_feed(self, rest: Expression) -> Expression:
        return self._pool.intersect((rest, self._lowering.character(single(0x0A))))

    def _look(self, node: Look, rest: Continuation) -> Continuation:
        pool = self._pool
        if not node.behind:
            return tuple(map(pool.intersect, zip(rest, self._ahead(node), strict=True)))
        loose = self._lowering_of(node).loose
        return tuple(
            one
            if holds_behind(node.body, context, loose=loose) is not node.negative
            else pool.empty
            for context, one in zip((None, *self._atoms), rest, strict=True)
        )

    def _lowering_of(self, look: Look) -> Lowering:
        """The lowering for a look's body: if the look is negative, the opposite one."""
        return self._lowering.opposite if look.negative else self._lowering

    def _ahead(self, look: Look) -> Continuation:
        """The rests that the look-ahead ``look`` allows."""
        lowering = self._lowering_of(look)
        texts = Continuations(lowering, self._atoms).before(
            look.body, self._same(lowering.anything)
        )
        return tuple(map(self._pool.complement, texts)) if look.negative else texts

    def _text(self, node: Node, rest: Continuation) -> Continuation:
        """A part without anchors or look-around, before ``rest``: split by its last character."""
        pool = self._pool
        if len(set(rest[1:])) == 1:
            something = pool.concatenate(self._lowering.nonempty(node), rest[1])
        else:
            something = pool.union(
                pool.concatenate(self._ending_in(node, atom), one)
                for atom, one in zip(self._atoms, rest[1:], strict=True)
                if one != pool.empty
            )
        if not pool.nullable[self._lowering.plain(node)]:
            return self._same(something)
        if len(set(rest)) == 1:
            return self._same(pool.concatenate(self._lowering.plain(node), rest[0]))
        return tuple(pool.union((something, one)) for one in rest)

    def _ending_in(self, node: Node, atom: Ranges) -> Expression:
        """The texts of ``node`` whose last character is in ``atom``."""
        pool, lowering = self._pool, self._lowering
        if isinstance(node, Characters):
            members = node.possible if lowering.loose else node.members
            return lowering.character(common(members, atom))
        if isinstance(node, Repeated) and isinstance(node.body, Characters):
            before = pool.repeat_after_one(lowering.plain(node.body), node.low, node.high)
            last = self._ending_in(node.body, atom)
            return pool.empty if node.high == 0 else pool.concatenate(before, last)
        ending = pool.concatenate(lowering.anything, lowering.character(atom))
        return pool.intersect((lowering.plain(node), ending))

    def _rounds(self, node: Repeated, rest: Continuation) -> Continuation:
        """Few rounds, written out from the last to the first."""
        assert node.high is not None
        result = rest
        for _ in range(node.high - node.low):
            result = self._any([rest, self.before(node.body, result)])
        for _ in range(node.low):
            result = self.before(node.body, result)
        return result

    def _tempered(self, node: Repeated, rest: Continuation) -> Continuation:
        """``((?!B).)*`` before the end of the text: no suffix of the text holds_behind with B."""
        pool, lowering = self._pool, self._lowering
        found = tempered(node)
        assert found is not None
        looks, character = found
        some = pool.repeat(lowering.plain(character), 1)
        options = [self._unseen(looks, self._before(some, self._nothing, rest), 1)]
        if lowering.loose:
            options.append(self._unseen(looks, self._before(some, self._line_feed, rest), 2))
        something = pool.union(options)
        if node.low > 0:
            return self._same(something)
        return tuple(pool.union((something, one)) for one in rest)

    def _nothing(self, rest: Expression) -> Expression:
        return self._pool.epsilon if self._pool.nullable[rest] else self._pool.empty

    def _before(
        self, texts: Expression, part: Callable[[Expression], Expression], rest: Continuation
    ) -> Expression:
        """``texts``, and then the ``part`` of the rest after their last character."""
        pool, lowering = self._pool, self._lowering
        options = []
        for atom, one in zip(self._atoms, rest[1:], strict=True):
            ending = pool.concatenate(lowering.anything, lowering.character(atom))
            options.append(pool.concatenate(pool.intersect((texts, ending)), part(one)))
        return pool.union(options)

    def _unseen(self, looks: tuple[Look, ...], texts: Expression, shortest: int) -> Expression:
        """``texts`` of which no suffix of ``shortest`` characters or more fails a look."""
        pool, parts = self._pool, [texts]
        for look in looks:
            lowering = self._lowering_of(look)
            failing = pool.complement(self._ahead(look)[0])
            long_enough = pool.repeat(lowering.character(CHARACTERS), shortest)
            failing = pool.intersect((failing, long_enough))
            parts.append(pool.complement(pool.concatenate(lowering.anything, failing)))
        return pool.intersect(parts)
