/** The states and ways that a walk has passed so far; pure functions. */

import type { Index } from "./index_of";
import type { Step, Walk } from "./wire";

/** Number of ways at the end of a walk that are highlighted as fresh. */
const FRESH = 3;

export interface Passed {
  /** Number of visits, by the id of a way or state. */
  visits: ReadonlyMap<string, number>;
  /** The last ways, the latest one first. */
  fresh: readonly string[];
  at: string | null;
  /** Number of the walked characters that are in leaps. */
  leapt: number;
  walked: number;
  /** Number of characters after which the text leaves the graph; null: it does not leave it. */
  left: number | null;
  complete: boolean;
}

export const NOTHING_PASSED: Passed = { visits: new Map(), fresh: [], at: null, leapt: 0, walked: 0, left: null, complete: false };

/** All steps of a walk that continued one with the steps `before`. */
export function stepsAfter(before: readonly Step[], walk: Walk): Step[] {
  return [...before.slice(0, walk.kept), ...walk.steps];
}

/** `steps`: all steps of the walk. `length`: number of characters of its text. */
export function passedBy(walk: Walk, steps: readonly Step[], index: Index, length: number): Passed {
  const visits = new Map<string, number>();
  const count = (id: string | null) => id !== null && visits.set(id, (visits.get(id) ?? 0) + 1);
  let leapt = 0;
  for (const step of steps) {
    const way = index.ways.get(step.way);
    if (!way) continue;
    count(way.source);
    count(way.id);
    if (step.leap !== null) leapt += step.end - step.leap;
  }
  const fresh = steps.slice(-FRESH).map((step) => step.way).reverse();
  return {
    visits,
    fresh: [...new Set(fresh)],
    at: walk.at,
    leapt,
    walked: walk.accepted,
    left: walk.accepted < length ? walk.accepted : null,
    complete: walk.complete,
  };
}

/** Ids of the states and ways that look different after the next walk. */
export function changed(before: Passed, after: Passed): Set<string> {
  const ids = new Set<string>([...before.fresh, ...after.fresh]);
  for (const [id, visits] of after.visits) if (before.visits.get(id) !== visits) ids.add(id);
  for (const id of before.visits.keys()) if (!after.visits.has(id)) ids.add(id);
  for (const id of [before.at, after.at]) if (id !== null) ids.add(id);
  return ids;
}
