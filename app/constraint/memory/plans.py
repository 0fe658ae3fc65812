"""Completions that repeat nothing, and how many tokens they take."""

from __future__ import annotations

from collections.abc import Hashable

from app.constraint.automaton.automaton import State
from app.constraint.automaton.distances import Distances
from app.constraint.memory.places import Place, Places

UNREACHABLE = 1 << 30
_MOST_NOTES = 1 << 12


class Plans:
    """Distances of places, as ``Distances`` has them of states. One thread at a time.

    A completion that was counted is noted for all places that its tokens pass, so that a budget
    that is kept once can be kept to the end.
    """

    def __init__(self, places: Places, distances: Distances) -> None:
        self._places = places
        self._automaton = places.automaton
        self._distances = distances
        self._quiet: dict[State, bool] = {}
        self._notes: dict[Hashable, tuple[bytes, int]] = {}
        """By place: a completion, and its tokens."""
        self._tokens: dict[State, int] = {}

    @property
    def nbytes(self) -> int:
        return 100 * (len(self._quiet) + len(self._tokens)) + 400 * len(self._notes)

    def is_quiet(self, state: State) -> bool:
        """Whether the shortest completion of a state repeats nothing, whatever was said before,
        if the items that are being written do not."""
        known = self._quiet.get(state)
        if known is None:
            known = self._quiet[state] = self._found_quiet(state)
        return known

    def _found_quiet(self, state: State) -> bool:
        places = self._places
        place = places.start(state)
        levels = len(place.begun)
        for byte in self._automaton.shortest(state):
            after = places.step(place, byte)
            if after is None:
                return False
            if any(
                begun and not place.begun[level] for level, begun in enumerate(after.begun[:levels])
            ):
                return False
            levels = min(levels, len(after.begun))
            place = after
        return True

    def of(self, place: Place, limit: int | None = None) -> int:
        """Tokens that surely suffice from ``place`` to a whole answer.

        Above ``limit`` perhaps a smaller number above it. ``UNREACHABLE`` where there is no way.
        """
        if limit is not None:
            least = self._distances.least(place.state)
            if least > limit:
                return least
        best = self._best(place)
        return UNREACHABLE if best is None else best[1]

    def text(self, place: Place) -> bytes:
        """A completion of ``place``, the one that ``of`` counts the tokens of."""
        best = self._best(place)
        assert best is not None, "a place that no answer stands at"
        return best[0]

    def tokens_of(self, state: State) -> int:
        """The distance of all places at a quiet state that are not near what was said."""
        known = self._tokens.get(state)
        if known is None:
            text = self._automaton.shortest(state)
            known = self._tokens[state] = int(self._distances.split(text)[0][0])
        return known

    def _best(self, place: Place) -> tuple[bytes, int] | None:
        """A completion and its tokens."""
        noted = self._notes.get(place.key)
        if not place.near and self.is_quiet(place.state):
            tokens = self.tokens_of(place.state)
            if noted is None or tokens < noted[1]:
                return self._automaton.shortest(place.state), tokens
        if noted is not None:
            return noted
        text = completion(self._places, place)
        if text is None:
            return None
        best = text, int(self._distances.split(text)[0][0])
        self._keep(place, *best)
        return best

    def _keep(self, place: Place, text: bytes, tokens: int) -> None:
        if len(self._notes) >= _MOST_NOTES:
            for key in [*self._notes][: _MOST_NOTES // 2]:
                del self._notes[key]
        self._notes[place.key] = text, tokens

    def note(self, place: Place) -> bytes:
        """Note the distances of all places that the completion of ``place`` passes.

        Returns its first token, b"" where nothing is left. From then on some token leads from
        each of them to one that is nearer.
        """
        text = self.text(place)
        tokens, lengths = self._distances.split(text)
        first = text[: int(lengths[0])]
        position, here = 0, place
        while True:
            left, size = int(tokens[position]), int(lengths[position])
            known = self._notes.get(here.key)
            if known is None or known[1] > left:
                self._keep(here, text[position:], left)
            elif position > 0 and known[0] == text[position:]:
                break
            if size == 0:
                break
            for byte in text[position : position + size]:
                after = self._places.step(here, byte)
                assert after is not None, "a completion that does not complete"
                here = after
            position += size
        return first


def completion(places: Places, place: Place) -> bytes | None:
    """A short completion of ``place``, None where there is none.

    The state's own one up to the item that would be repeated; that is then the shortest one that is
    not; and so on.
    """
    done = b""
    while True:
        text = places.automaton.shortest(place.state)
        here: Place | None = place
        starts = [(0, place)]
        for position, byte in enumerate(text):
            assert here is not None
            after = places.step(here, byte)
            if after is None:
                break
            if places.begins(here, after):
                starts.append((position, here))
            here = after
        else:
            return done + text
        for position, start in reversed(starts):
            found = places.away(start)
            if found is not None:
                done += text[:position] + found[0]
                place = found[1]
                break
        else:
            return None
