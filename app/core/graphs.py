"""Requests for the graph of a constraint: its picture, and the walk of a text over it."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.constraint import ConstraintSpec

MOST_STATES = 2_000
"""Maximum states of a picture."""
MOST_WALKED = 200_000
"""Characters of a text that is walked, at most."""


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """Which picture of a constraint."""

    open: tuple[str, ...] = ()
    """JSON Pointers of values whose inside is drawn, however large."""
    max_states: int = 400
    drawn: bool = False
    """Whether the picture also has its SVG elements and text for Graphviz."""


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """A picture of ``spec``."""

    spec: ConstraintSpec
    options: GraphOptions


@dataclass(frozen=True, slots=True)
class WalkSpec:
    """The walk of ``text`` over a picture."""

    graph: GraphSpec
    text: str
    state: str | None
    """State after the walk of the text's beginning, to continue from; None: the start."""
