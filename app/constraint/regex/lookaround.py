r"""Look-ahead and look-behind, in what precedes a known rest of the text.

``(?=B)`` before a rest C is C that begins with B: the intersection of C and B followed by anything,
and ``(?!B)`` is that with a complement. So a tree is translated from its end to its start, each
part with its continuation: the language of all that follows up to the end of the text. A
look-behind sees one character. The characters that look-behinds tell apart are partitioned into
atoms, and a continuation has one language for each atom that may come before it (and one for the
start of the text, where no character does).

Look-around inside repetitions is not regular in this form but in two cases: few rounds, which are
written out, and rounds of one character before the end of the text, ``((?!B).)*$``: every suffix of
the text is then looked at, so the whole is a complement again.
"""

from __future__ import annotations

from functools import lru_cache

from app.constraint.language.codepoints import CHARACTERS, Ranges, common, negate
from app.constraint.regex.syntax import (
    Alternatives,
    Anchor,
    Characters,
    Look,
    Node,
    Repeated,
    Sequence,
)

MOST_ROUNDS = 64
"""Rounds of repetitions around look-around that are written out, over all nesting levels."""
MOST_SETS = 6
"""Different sets of characters that one pattern may look behind at."""


def begins(node: Node, context: Ranges | None, *, loose: bool) -> bool:
    """Whether a look-behind to ``node`` holds after a character of ``context`` (None: the start).

    ``context`` is an atom: any set behind has all of it or nothing.
    """
    if isinstance(node, Characters):
        members = node.possible if loose else node.members
        return context is not None and _is_within(context, members)
    if isinstance(node, Anchor):
        return context is None
    options = node.options if isinstance(node, Alternatives) else ()
    return any(begins(option, context, loose=loose) for option in options)


@lru_cache(maxsize=4096)
def _is_within(part: Ranges, members: Ranges) -> bool:
    return common(members, part) == part


def is_one_behind(node: Node) -> bool:
    """Whether ``node`` is what a look-behind may hold: one character, the start, or either."""
    if isinstance(node, Alternatives):
        return all(map(is_one_behind, node.options))
    return isinstance(node, Characters) or (isinstance(node, Anchor) and not node.at_end)


def atoms(node: Node) -> tuple[Ranges, ...]:
    """A partition of all characters that every set behind in ``node`` is a union of."""
    parts: list[Ranges] = [CHARACTERS]
    for members in sorted(sets_behind(node)):
        split = [(common(part, members), common(part, negate(members))) for part in parts]
        parts = [part for pair in split for part in pair if part]
    return tuple(parts)


def sets_behind(node: Node, *, behind: bool = False) -> set[Ranges]:
    """The sets of characters that ``node`` looks behind at."""
    if isinstance(node, Characters):
        return {node.members, node.possible} if behind else set()
    if isinstance(node, Look):
        return sets_behind(node.body, behind=behind or node.behind)
    return {found for below in _below(node) for found in sets_behind(below, behind=behind)}


def looks_behind(node: Node) -> bool:
    """Whether ``node`` asks anywhere about the text before it."""
    if isinstance(node, Anchor):
        return not node.at_end
    if isinstance(node, Look) and node.behind:
        return True
    return any(map(looks_behind, [node.body] if isinstance(node, Look) else _below(node)))


def first_not_followed(node: Node, *, ends: bool = False) -> Node | None:
    """The first repetition whose look-around cannot be translated; None if all is well.

    ``ends``: whether nothing but the end of the text follows ``node``.
    """
    if not node.looks:
        return _anchors_repeated(node)
    if isinstance(node, Look):
        return first_not_followed(node.body)
    if isinstance(node, Repeated):
        few = node.high is not None and node.counts <= MOST_ROUNDS
        if few or (ends and tempered(node) is not None):
            return first_not_followed(node.body)
        return node
    if isinstance(node, Alternatives):
        found = (first_not_followed(option, ends=ends) for option in node.options)
        return next((one for one in found if one is not None), None)
    assert isinstance(node, Sequence)
    for part in reversed(node.parts):
        one = first_not_followed(part, ends=ends)
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
    """Whether there are anchors inside many rounds of a repetition, in a tree that was checked."""
    return not node.looks and _anchors_repeated(node) is not None


def _anchors_repeated(node: Node) -> Node | None:
    """The first of many rounds with anchors inside."""
    many = isinstance(node, Repeated) and (node.high is None or node.counts > MOST_ROUNDS)
    if many and node.anchored:
        return node
    found = map(_anchors_repeated, _below(node))
    return next((one for one in found if one is not None), None)


def _below(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Sequence):
        return node.parts
    if isinstance(node, Alternatives):
        return node.options
    return (node.body,) if isinstance(node, Repeated) else ()
