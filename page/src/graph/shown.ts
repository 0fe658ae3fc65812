/** The selection in the graph, shared by the drawing, its tools and the list beside it. */

import { computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";

import { constraintKind, goToPointer } from "../state";
import { placeOf } from "./index_of";
import type { Picture } from "./picture";
import { registered, toggleFold } from "./register";
import type { View } from "./view";
import { passed } from "./walker";
import type { State } from "./wire";

export interface Canvas {
  picture: Picture;
  view: View;
}

/** Null until the drawing is in the page. */
export const canvas: Signal<Canvas | null> = signal(null);
/** Id of the selected state or way. */
export const selected: Signal<string | null> = signal(null);

/** The listed state: the selected one or a selected way's source; else the walk's or the start. */
export const listed: ReadonlySignal<State | null> = computed(() => {
  const found = registered.value;
  if (found === null) return null;
  const { states, ways } = found.index;
  const id = selected.value ?? passed.value.at;
  return states.get(id ?? "") ?? states.get(ways.get(id ?? "")?.source ?? "") ?? found.graph.states[0] ?? null;
});

/** Pointer of the fold that was last opened or closed, until its place is shown. */
export const turned: Signal<string | null> = signal(null);

/** Selects a state or way, and scrolls it into view. */
export function select(id: string): void {
  selected.value = id;
  const place = registered.value && placeOf(registered.value.index, id);
  if (place) canvas.value?.view.visit(place);
}

/** Handles a click on a state or way: opens a fold, else goes to the place in the schema. */
export function follow(id: string): void {
  const index = registered.value?.index;
  const way = index?.ways.get(id);
  selected.value = id;
  if (way?.kind === "fold" && way.open !== null) turn(way.open);
  else inSchema((way ?? index?.states.get(id))?.pointer ?? null);
}

/** Opens a fold, or closes it again. */
export function turn(pointer: string): void {
  turned.value = pointer;
  toggleFold(pointer);
}

export function inSchema(pointer: string | null): void {
  if (pointer !== null && constraintKind.value === "schema") goToPointer(pointer);
}
