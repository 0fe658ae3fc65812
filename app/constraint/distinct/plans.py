"""Completions that repeat nothing, and upper bounds of their lengths."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from app.constraint.distinct.places import Place, Places
from app.constraint.language.counting import COUNTED, Counting
from app.constraint.language.expressions import INFINITE, Expression
from app.constraint.language.rows import InTurns, TooMuchWork

_MOST_TRIED = 8
"""Strings of a source that may fail before it is dropped; it may come from another place."""

_Sources = dict[int, Iterator[bytes]]
"""Strings that the completion has not used yet, shortest first: items, by their expression, and
names, by the number of open containers."""
_Taken = dict[int, int]
"""Number of strings used of each source, which are skipped when it is restarted."""


class Plans:
    """Completions of the places of one automaton. One thread at a time."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._automaton = places.automaton
        self._pool = places.automaton.pool
        self._strings = places.items
        self._items = tuple(places.levels.items)
        self._extra = {(self._items, size): each for size, each in self._pool.longer_items.items()}

    def is_plain(self, place: Place) -> bool:
        """Whether the shortest completion of the state of ``place`` repeats nothing."""
        if self._pool.needed_names or self._pool.items_are_needed or place.may_repeat:
            return False
        return self._places.next_item(place) is None

    def bound(self, place: Place) -> int:
        """Upper bound of the bytes to finish the answer; ``INFINITE`` if it takes a search."""
        places, levels, name = self._places, place.repeatable, place.names.repeatable
        length = self._automaton.length(place.state)
        if len(levels) + (name is not None) > 1 or self._pool.items_vary:
            return INFINITE
        if levels:
            rest = places.levels.rest(place.state, levels[0])
            length += self._longer(self._strings, place.frames[levels[0]].num_matching, rest)
        elif name is not None:
            ending = places.ending_of_name(place)
            if ending is None:
                return INFINITE
            length += self._longer(ending.counting, name.num_matching, ending.rest)
        seen = max([len(frame.seen.texts) for frame in place.frames], default=0)
        if self._pool.items_are_needed or seen:
            count = 1 + (length // 2 if self._pool.items_are_needed else 0)
            length += count * self._longer(self._strings, seen + count, *self._items)
        if names := self._pool.needed_names:
            seen = max([len(each.texts) for each in place.names.open if each], default=0)
            count = 1 + length // 4
            number = seen + count
            if len(names) > 1 and any(self._strings.count(each, number) < number for each in names):
                return INFINITE  # a name of another kind may be needed, with a longer value
            length += count * self._longer(self._strings, number, *names)
        return length

    def _longer(self, counting: Counting, number: int, *languages: Expression) -> int:
        """Maximum bytes by which a string of ``languages`` gets longer if ``number`` of them must
        not be repeated."""
        size = 1
        while size <= number:
            size *= COUNTED
        known = self._extra.get((languages, size))
        if known is None:
            known = self._extra[languages, size] = counting.longer(languages, size + 1)
        return known

    def completion(self, place: Place) -> InTurns[bytes | None]:
        """A short completion of ``place``; None if none is found.

        The state's completion up to an item or a name that may repeat one that was seen, then the
        shortest new item or name, and so on.
        """
        sources: _Sources = {}
        taken: _Taken = {}
        done, text, position = bytearray(), b"", -1
        while True:
            try:
                if position < 0:
                    text, position = self._automaton.shortest(place.state), 0
                ahead = text[position : position + 1]
                if place.may_repeat or self._places.next_item(place, ahead) is not None:
                    found = (
                        self._places.past_new_name(place, text, position)
                        or self._fresh(place, sources, taken)
                        or self._places.past_repeats(place)
                    )
                    if found is None:
                        return None
                    way, place = found
                    position = position + len(way) if text.startswith(way, position) else -1
                elif position == len(text):
                    return bytes(done)
                else:
                    end, place = self._places.along(place, text, position)
                    way, position = text[position:end], end
                done += way
            except TooMuchWork as error:
                sources.clear()  # an iterator that raised cannot continue
                yield error

    def _fresh(self, place: Place, sources: _Sources, taken: _Taken) -> tuple[bytes, Place] | None:
        """A short new item or name that begins here, and the place after it; None if that takes a
        search."""
        places, item, name = self._places, None, place.names.repeatable
        counting, opening, quote = self._strings, b"", b""
        if not place.may_repeat:
            item = places.next_item(place)
            assert item is not None
            if len(item.alternatives) > 1:  # the rest may depend on the alternative
                return None
            opening, seen = item.blanks, place.frames[item.level].seen
            key = rest = item.alternatives[0]
            for blank in opening:
                after = places.step(place, blank)
                assert after is not None
                place = after
        else:
            ending = places.ending_of_name(place) if place.names.is_next else None
            if ending is None or name is None or place.repeatable:
                return None
            key, seen, rest = ~len(place.names.open), name.seen, ending.rest
            counting, opening, quote = ending.counting, ending.opening, ending.quote
        if key not in sources:
            sources[key] = islice(counting.strings(rest), taken.setdefault(key, 0), None)
        tried = 0
        for text in sources[key]:
            if quote + text in seen:
                taken[key] += 1
                continue
            if item is None:
                after = places.advanced(place, opening + text)
            elif self._pool.regular[rest]:
                after = places.after_item(place, item.level, text)
            else:
                after = places.advanced(place, text)
            taken[key] += 1
            if after is not None:
                return opening + text, after
            tried += 1
            if tried > _MOST_TRIED:
                break
        del sources[key], taken[key]
        return None
