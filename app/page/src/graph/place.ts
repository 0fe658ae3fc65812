/** Places in the text of a regular expression or grammar, as the server's errors have them. */

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
