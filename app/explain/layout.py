"""A layered drawing of a graph, top down (Sugiyama, Tagawa and Toda 1981), deterministic.

Edges that lead back up are turned round for the layering. An edge over several layers passes a
bend in each, which keeps boxes out of its way. Horizontal places are weighted means of the
neighbours', kept apart by isotonic regression (pool adjacent violators).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_BEND_WIDTH = 12.0
_GAP_ACROSS = 22.0
_GAP_DOWN = 24.0
_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an item of the drawing is: its centre."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Layout:
    places: list[Placed]
    """By item."""
    routes: list[list[Placed]]
    """By edge: the points it passes, its ends included, from its source to its target."""
    width: float
    height: float


def lay_out(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    """Place items of the given widths and heights. Cost: about items times edges, at most."""
    return _Layered(sizes, edges).run()


class _Layered:
    def __init__(
        self, sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]
    ) -> None:
        self._sizes = list(sizes)
        self._items = len(sizes)
        self._edges = edges
        self._back = _back_edges(len(sizes), edges)
        self._layer: list[int] = []
        self._layers: list[list[int]] = []
        self._chains: list[list[int]] = []
        """By edge: its ends and the bends between them, downwards."""
        self._above: list[list[int]] = []
        self._below: list[list[int]] = []

    def run(self) -> Layout:
        self._assign_layers()
        self._insert_bends()
        self._order()
        x = self._across()
        tops, y = 0.0, [0.0] * len(self._sizes)
        for layer in self._layers:
            height = max(self._sizes[item][1] for item in layer)
            for item in layer:
                y[item] = tops + height / 2
            tops += height + _GAP_DOWN
        left = min(x[i] - self._sizes[i][0] / 2 for i in range(len(x)))
        right = max(x[i] + self._sizes[i][0] / 2 for i in range(len(x)))
        places = [Placed(round(x[i] - left, 1), round(y[i], 1)) for i in range(len(x))]
        routes = [
            [places[item] for item in (reversed(chain) if edge in self._back else chain)]
            for edge, chain in enumerate(self._chains)
        ]
        return Layout(places[: self._items], routes, right - left, tops - _GAP_DOWN)

    def _downwards(self, edge: int) -> tuple[int, int]:
        source, target = self._edges[edge]
        return (target, source) if edge in self._back else (source, target)

    def _assign_layers(self) -> None:
        """Each item below everything that leads to it."""
        below: list[list[int]] = [[] for _ in range(self._items)]
        missing = [0] * self._items
        for edge in range(len(self._edges)):
            upper, lower = self._downwards(edge)
            if upper != lower:
                below[upper].append(lower)
                missing[lower] += 1
        self._layer = [0] * self._items
        ready = [item for item in range(self._items) if not missing[item]]
        for item in ready:
            for lower in below[item]:
                self._layer[lower] = max(self._layer[lower], self._layer[item] + 1)
                missing[lower] -= 1
                if not missing[lower]:
                    ready.append(lower)

    def _insert_bends(self) -> None:
        for edge in range(len(self._edges)):
            upper, lower = self._downwards(edge)
            chain = [upper]
            for layer in range(self._layer[upper] + 1, self._layer[lower]):
                chain.append(len(self._sizes))
                self._sizes.append((_BEND_WIDTH, 0.0))
                self._layer.append(layer)
            self._chains.append([*chain, lower])
        count = len(self._sizes)
        self._above, self._below = [[] for _ in range(count)], [[] for _ in range(count)]
        for chain in self._chains:
            for upper, lower in pairwise(chain):
                self._below[upper].append(lower)
                self._above[lower].append(upper)
        self._layers = [[] for _ in range(max(self._layer) + 1)]
        for item in range(count):
            self._layers[self._layer[item]].append(item)

    def _order(self) -> None:
        """Sort every layer by the mean place of its neighbours, down and up in turn."""
        place = [0.0] * len(self._sizes)
        for layer in self._layers:
            for index, item in enumerate(layer):
                place[item] = float(index)
        for turn in range(_ROUNDS):
            down = turn % 2 == 0
            for layer in self._layers if down else reversed(self._layers):
                key = {}
                for item in layer:
                    near = self._above[item] if down else self._below[item]
                    mean = sum(place[other] for other in near) / len(near) if near else place[item]
                    key[item] = (mean, place[item])
                layer.sort(key=key.__getitem__)
                for index, item in enumerate(layer):
                    place[item] = float(index)

    def _across(self) -> list[float]:
        x = [0.0] * len(self._sizes)
        for layer in self._layers:
            self._spread(layer, [0.0] * len(layer), x)
        for turn in range(2 * _ROUNDS):
            down = turn % 2 == 0
            for layer in self._layers if down else reversed(self._layers):
                wanted = []
                for item in layer:
                    near = [*self._above[item], *self._below[item]]
                    wanted.append(sum(x[other] for other in near) / len(near) if near else x[item])
                self._spread(layer, wanted, x)
        return x

    def _spread(self, layer: Sequence[int], wanted: Sequence[float], x: list[float]) -> None:
        """As near to ``wanted`` as the widths allow (least squares), the order kept."""
        offsets, offset = [], 0.0
        for position, item in enumerate(layer):
            if position:
                before = self._sizes[layer[position - 1]][0]
                offset += (before + self._sizes[item][0]) / 2 + _GAP_ACROSS
            offsets.append(offset)
        blocks: list[tuple[float, int]] = []
        for want, offset in zip(wanted, offsets, strict=True):
            mean, count = want - offset, 1
            while blocks and blocks[-1][0] > mean:
                other, members = blocks.pop()
                mean = (mean * count + other * members) / (count + members)
                count += members
            blocks.append((mean, count))
        means = [mean for mean, count in blocks for _ in range(count)]
        for item, mean, offset in zip(layer, means, offsets, strict=True):
            x[item] = mean + offset


def _back_edges(items: int, edges: Sequence[tuple[int, int]]) -> set[int]:
    """Edges that a depth-first walk finds to lead to where it came from."""
    leaving: list[list[int]] = [[] for _ in range(items)]
    for number, (source, _) in enumerate(edges):
        leaving[source].append(number)
    colour, back = [0] * items, set()
    for root in range(items):
        if colour[root]:
            continue
        colour[root] = 1
        stack = [(root, iter(leaving[root]))]
        while stack:
            item, rest = stack[-1]
            for number in rest:
                target = edges[number][1]
                if colour[target] == 1:
                    back.add(number)
                elif colour[target] == 0:
                    colour[target] = 1
                    stack.append((target, iter(leaving[target])))
                    break
            else:
                colour[item] = 2
                stack.pop()
    return back
