"""Where one answer stands whose items must differ from one another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from app.constraint.automaton.automaton import START
from app.constraint.automaton.distances import Distances
from app.constraint.automaton.masks import Masks
from app.constraint.memory.masks import PlaceMasks
from app.constraint.memory.places import Place, Places
from app.constraint.memory.plans import Plans
from app.core.choices import Choice, Way

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

    def only(self, place: Place, way: Way, before: bytes) -> Place:
        """See ``ChoosingState.only``."""
        whole = before + way.text if way.ends_answer else None
        return self.places.only(place, [before + text for text in way.texts], whole)

    def left(self, place: Place, choice: Choice) -> Choice | None:
        """Those of the ways that still lead from ``place`` to an answer; None where none does.

        Costs a walk along each of their texts.
        """
        advance = self.places.advance
        numbers: list[int] = []
        ways: list[Way] = []
        for number, way in enumerate(choice.ways):
            texts = tuple([text for text in way.texts if advance(place, text) is not None])
            ends = way.ends_answer and advance(place, way.text) is not None
            if texts or ends:
                numbers.append(number)
                ways.append(replace(way, texts=texts, ends_answer=ends))
        if ways == [*choice.ways]:
            return choice
        if not ways:
            return None
        return replace(choice, ways=tuple(ways), of=tuple(numbers))
