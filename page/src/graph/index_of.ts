/** Lookup tables of a graph: states, ways and their places by id. */

import { lineY } from "./shapes";
import type { Box, Graph, State, Way } from "./wire";

export interface Index {
  states: Map<string, State>;
  ways: Map<string, Way>;
  /** By way: the index of its box, and the y coordinate of the middle of its line. */
  lines: Map<string, { box: number; y: number }>;
  boxes: readonly Box[];
  /** By box: the indices of its routes. */
  routes: Map<number, number[]>;
  /** By state: the ways that leave it, and those that lead to it. */
  leaving: Map<string, Way[]>;
  coming: Map<string, Way[]>;
}

export function indexOf(graph: Graph): Index {
  const index: Index = {
    states: new Map(graph.states.map((state) => [state.id, state])),
    ways: new Map(graph.ways.map((way) => [way.id, way])),
    lines: new Map(),
    boxes: graph.boxes,
    routes: new Map(),
    leaving: new Map(),
    coming: new Map(),
  };
  const between = new Map(graph.boxes.map((box, number) => [`${box.source} ${box.target}`, number]));
  graph.routes.forEach((route, number) => push(index.routes, route.box, number));
  for (const way of graph.ways) {
    const number = between.get(`${way.source} ${way.target}`)!;
    const box = graph.boxes[number]!;
    const line = box.ways.indexOf(way.id);
    index.lines.set(way.id, { box: number, y: lineY(box, line < 0 ? box.ways.length : line) });
    push(index.leaving, way.source, way);
    if (way.target !== null) push(index.coming, way.target, way);
  }
  return index;
}

/** The middle of a state, or of a way's line. */
export function placeOf(index: Index, id: string): { x: number; y: number } | null {
  const line = index.lines.get(id);
  return line ? { x: index.boxes[line.box]!.x, y: line.y } : (index.states.get(id) ?? null);
}

function push<Key, Value>(map: Map<Key, Value[]>, key: Key, value: Value): void {
  const known = map.get(key);
  if (known) known.push(value);
  else map.set(key, [value]);
}
