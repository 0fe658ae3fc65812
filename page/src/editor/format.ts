/** Formats JSON. Literals are not changed: numbers keep all their digits. */

const WIDTH = 90;

/** `text` indented by two; short values stay on one line. Throws `SyntaxError` for invalid JSON. */
export function formatted(text: string): string {
  JSON.parse(text);
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g)!;
  const ends = endsOf(tokens);
  const widths = widthsBefore(tokens);
  const out: string[] = [];
  const room: number[] = [];
  let indent = "";
  let flatUntil = -1;

  for (let at = 0; at < tokens.length; at++) {
    const token = tokens[at]!;
    const flat = at <= flatUntil;
    if (token === "{" || token === "[") {
      const end = ends.get(at)!;
      out.push(token);
      if (flat) continue;
      const width = widths[end]! - widths[at]! + 1;
      const scalars = token === "[" && !tokens.slice(at + 1, Math.min(end, at + 400)).some((each) => each === "{" || each === "[");
      if (end === at + 1 || (indent.length + width <= WIDTH && (scalars || width <= 60) && !holdsObjects(tokens, at, end))) flatUntil = end;
      else {
        room.push(end);
        indent += "  ";
        out.push("\n", indent);
      }
    } else if ((token === "}" || token === "]") && room.at(-1) === at) {
      room.pop();
      indent = indent.slice(2);
      out.push("\n", indent, token);
    } else if (token === ",") out.push(flat ? ", " : `,\n${indent}`);
    else out.push(token === ":" ? ": " : token);
  }
  return out.join("");
}

/** Objects that contain objects are easier to read on several lines, even short ones. */
function holdsObjects(tokens: readonly string[], start: number, end: number): boolean {
  for (let at = start + 1; at < end; at++) if (tokens[at] === "{") return true;
  return false;
}

function endsOf(tokens: readonly string[]): Map<number, number> {
  const ends = new Map<number, number>();
  const open: number[] = [];
  tokens.forEach((token, at) => {
    if (token === "{" || token === "[") open.push(at);
    else if (token === "}" || token === "]") ends.set(open.pop()!, at);
  });
  return ends;
}

/** Number of characters before each token if everything is on one line. */
function widthsBefore(tokens: readonly string[]): number[] {
  let width = 0;
  return tokens.map((token) => {
    const before = width;
    width += token.length + (token === "," || token === ":" ? 1 : 0);
    return before;
  });
}
