/** Places in what a constraint was written as: in a schema, and in the text of a regular expression or grammar. */

import { segmentsOf } from "../ui/pointer";

/** Whether a JSON Pointer (RFC 6901) leads to something. */
export function resolves(value: unknown, pointer: string): boolean {
  let at = value;
  for (const name of segmentsOf(pointer)) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, name)) return false;
    at = (at as Record<string, unknown>)[name];
  }
  return true;
}

/** In characters (code points): line and column from 1, or a position from 0. */
export interface Place {
  line?: number | null;
  column?: number | null;
  position?: number | null;
}

/** The place in UTF-16 units, as text fields count. */
export function offsetOf(text: string, { line, column, position }: Place): number {
  const units = (part: string, characters: number) => [...part].slice(0, characters).join("").length;
  if (typeof line !== "number") return units(text, position ?? 0);
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  return Math.min(text.length, before + units(lines[line - 1] ?? "", (column ?? 1) - 1));
}
