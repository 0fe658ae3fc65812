/** Text search in a graph. */

import { placeOf, type Index } from "./index_of";
import type { Graph } from "./wire";

/** Ids of the matching states and ways, in the order of the drawing, from its top. A space may be
 * written as ·, as in the drawing. */
export function matchesOf(graph: Graph, index: Index, wanted: string): string[] {
  const needle = plain(wanted.trim());
  if (!needle) return [];
  const has = (...texts: (string | null)[]) => texts.some((text) => text !== null && plain(text).includes(needle));
  const found = graph.states.filter((state) => has(state.note, state.pointer)).map(({ id }) => id);
  for (const way of graph.ways) if (has(way.choice, way.leap, way.choice + way.leap, way.pointer)) found.push(way.id);
  const place = new Map(found.map((id) => [id, placeOf(index, id)!]));
  return found.sort((a, b) => place.get(a)!.y - place.get(b)!.y || place.get(a)!.x - place.get(b)!.x);
}

function plain(text: string): string {
  return text.toLowerCase().replaceAll("·", " ");
}
