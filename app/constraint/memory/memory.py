"""Where one answer stands whose items must differ from one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.constraint.automaton.automaton import START
from app.constraint.automaton.distances import Distances
from app.constraint.automaton.masks import Masks
from app.constraint.memory.masks import PlaceMasks
from app.constraint.memory.places import Place, Places
from app.constraint.memory.plans import Plans

if TYPE_CHECKING:
    from app.constraint.automaton.automaton import Automaton


class Memory:
    """What the answers of one constraint share that carry what they said."""

    def __init__(self, automaton: Automaton, distances: Distances, masks: Masks) -> None:
        self.places = Places(automaton)
        self.plans = Plans(self.places, distances)
        self.masks = PlaceMasks(self.places, self.plans, masks)

    @property
    def is_needed(self) -> bool:
        """Whether there are items that must differ at all."""
        return self.places.levels.any

    @property
    def nbytes(self) -> int:
        return self.places.nbytes + self.plans.nbytes + self.masks.nbytes

    def start(self) -> Place:
        """Before the first byte of an answer."""
        return self.places.start(START)
