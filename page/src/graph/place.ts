/** Places in a constraint's source: a schema, or the text of a regular expression or grammar. */

import { segmentsOf } from "../ui/pointer";

/** Whether a JSON Pointer (RFC 6901) leads to a value. */
export function resolves(value: unknown, pointer: string): boolean {
  let at = value;
  for (const name of segmentsOf(pointer)) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, name)) return false;
    at = (at as Record<string, unknown>)[name];
  }
  return true;
}

/** Line and column from 1, or position from 0, in characters (code points). */
export interface Place {
  line?: number | null;
  column?: number | null;
  position?: number | null;
}

/** The offset of a place in UTF-16 units, as text fields count. */
export function offsetOf(text: string, { line, column, position }: Place): number {
  const units = (part: string, characters: number) => [...part].slice(0, characters).join("").length;
  if (typeof line !== "number") return units(text, position ?? 0);
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  return Math.min(text.length, before + units(lines[line - 1] ?? "", (column ?? 1) - 1));
}
