/** A graph as SVG elements, described: for the page they become nodes, for a file text. */

import type { Box, Graph, Kind, Route, State, Way } from "./wire";

export interface Shape {
  tag: string;
  attributes: Record<string, string | number>;
  inside?: readonly Shape[];
  text?: string;
}

/** Sizes that the server's layout counts on, in pixels. */
const ADVANCE = 7.3;
const LINE = 19;
const RADIUS = 11;
/** From a state's middle to where arrows end. */
const RIM = 13;
const HEAD = 7;
/** Height of a text's background. */
const RUN = 15;
/** Room for how often a way was taken, beside its box. */
const COUNT = 36;

/** The middle of a box's line. */
export function lineY(box: Box, line: number): number {
  return box.y - box.height / 2 + 4 + (line + 0.5) * LINE;
}

/** A part of the drawing, with the rectangle that it stays in. */
export interface Item {
  left: number;
  top: number;
  right: number;
  bottom: number;
  shape: () => Shape;
}

/** The drawing in three layers; what comes later lies above. */
export function layersOf(graph: Graph): Item[][] {
  const ways = new Map(graph.ways.map((way) => [way.id, way]));
  const item = (left: number, top: number, right: number, bottom: number, shape: () => Shape) => ({ left, top, right, bottom, shape });
  return [
    graph.routes.map((route, number) => {
      const [x, y] = [route.points.map((point) => point[0]), route.points.map((point) => point[1])];
      return item(Math.min(...x) - HEAD, Math.min(...y) - HEAD, Math.max(...x) + HEAD, Math.max(...y) + HEAD, () => routeShape(route, number));
    }),
    graph.boxes.map((box) => {
      const [x, y] = [box.width / 2, box.height / 2];
      return item(box.x - x, box.y - y, box.x + x + COUNT, box.y + y + LINE, () => boxShape(box, ways));
    }),
    graph.states.map((state) => {
      const note = length(state.note) * ADVANCE + 3;
      return item(state.x - RIM, state.y - RIM, state.x + RIM + note, state.y + RIM, () => stateShape(state));
    }),
  ];
}

export function shapesOf(graph: Graph): Shape[] {
  return layersOf(graph).flatMap((items) => items.map((item) => item.shape()));
}

/** The drawing without its texts, for where they could not be read: a path for each kind of thing. */
export function outlinesOf(graph: Graph): Shape[] {
  const ways = new Map(graph.ways.map((way) => [way.id, way]));
  const paths = new Map<string, string[]>([["line", []], ["frame", []]]);
  const put = (name: string, path: string) => {
    const known = paths.get(name);
    if (known) known.push(path);
    else paths.set(name, [path]);
  };
  for (const { points } of graph.routes) put("line", `M${points.map((point) => point.join(" ")).join("L")}`);
  for (const box of graph.boxes) {
    put("frame", rectangle(box.x - box.width / 2, box.y - box.height / 2, box.width, box.height));
    box.ways.forEach((id, line) => {
      for (const { x, wide, kind } of runsOf(ways.get(id)!, box)) put(`run ${kind}`, rectangle(x, lineY(box, line) - RUN / 2, wide, RUN));
    });
  }
  for (const { x, y } of graph.states) put("rim", `M${x - RADIUS} ${y}a${RADIUS} ${RADIUS} 0 1 0 ${2 * RADIUS} 0a${RADIUS} ${RADIUS} 0 1 0 ${-2 * RADIUS} 0`);
  return [...paths].map(([name, parts]) => ({ tag: "path", attributes: { class: name, d: parts.join("") } }));
}

/** A way's line in an outline. */
export function lineOutline(box: Box, y: number): string {
  return rectangle(box.x - box.width / 2, y - LINE / 2, box.width, LINE);
}

function rectangle(x: number, y: number, width: number, height: number): string {
  return `M${rounded(x)} ${rounded(y)}h${rounded(width)}v${height}h${rounded(-width)}z`;
}

function boxShape(box: Box, ways: Map<string, Way>): Shape {
  const [left, top] = [box.x - box.width / 2, box.y - box.height / 2];
  const frame = { x: left, y: top, width: box.width, height: box.height, rx: 6, class: "frame" };
  const lines = box.ways.map((id, line) => wayShape(ways.get(id)!, box, line));
  if (box.more > 0) lines.push(textShape(left + 7, lineY(box, box.ways.length) + 4, `... and ${box.more} more`, "more"));
  if (box.target === null) lines.push(textShape(box.x, box.y + box.height / 2 + 14, "more, not drawn", "cut"));
  return { tag: "g", attributes: { class: "box" }, inside: [{ tag: "rect", attributes: frame }, ...lines] };
}

function wayShape(way: Way, box: Box, line: number): Shape {
  const middle = lineY(box, line);
  const inside: Shape[] = [
    { tag: "title", attributes: {}, text: wayWords(way) },
    { tag: "rect", attributes: { class: "hit", x: box.x - box.width / 2 + 2, y: middle - LINE / 2 + 0.5, width: box.width - 4, height: LINE - 1, rx: 4 } },
  ];
  const spans: Shape[] = [];
  for (const { text, kind, x, wide } of runsOf(way, box)) {
    inside.push({ tag: "rect", attributes: { class: `run ${kind}`, x, y: middle - RUN / 2, width: wide, height: RUN, rx: 3 } });
    spans.push({ tag: "tspan", attributes: { x: x + 2 }, text });
  }
  inside.push({ tag: "text", attributes: { y: middle + 4.5 }, inside: spans });
  return { tag: "g", attributes: { id: way.id, class: way.kind === "fold" ? "way folded" : "way" }, inside };
}

/** A text of a line, with the kind that colours it. */
interface Run {
  text: string;
  kind: Kind | "leap";
  x: number;
  wide: number;
}

function runsOf(way: Way, box: Box): Run[] {
  const texts: [string, Kind | "leap"][] = way.choice ? [[way.choice, way.kind]] : [];
  if (way.leap) texts.push([way.leap, "leap"]);
  let x = box.x - box.width / 2 + 5;
  return (texts.length ? texts : ([["(nothing)", "start"]] as const)).map(([text, kind]) => {
    const wide = length(text) * ADVANCE + 4;
    x += wide + 2;
    return { text, kind, x: x - wide - 2, wide };
  });
}

/** A way in words. */
export function wayWords(way: Way): string {
  const words = [];
  if (way.kind === "fold") words.push(`folded: ${way.choice}`);
  else if (way.choice) words.push(way.choice);
  if (way.leap) words.push(`leap ${way.leap}`);
  return words.join(", then ") || "(nothing)";
}

function stateShape(state: State): Shape {
  const circle = (radius: number, name: string): Shape => ({ tag: "circle", attributes: { class: name, cx: state.x, cy: state.y, r: radius } });
  const inside: Shape[] = [{ tag: "title", attributes: {}, text: stateWords(state) }, circle(RADIUS, "rim")];
  if (state.accepting) inside.push(circle(RADIUS - 4, "dot"));
  else inside.push(textShape(state.x, state.y + 3.5, state.label, "number"));
  if (state.note) inside.push(textShape(state.x + RIM + 3, state.y + 4, state.note, "note"));
  return { tag: "g", attributes: { id: state.id, class: "state" }, inside };
}

/** A state in words; `note` has what it repeats, and whether the answer may end. */
export function stateWords(state: State): string {
  return state.note ? `State ${state.label}: ${state.note}` : `State ${state.label}`;
}

/** A smooth line through the points, which leave room for an arrow's head. */
function routeShape(route: Route, number: number): Shape {
  const [first, ...rest] = route.points as [[number, number], ...[number, number][]];
  let path = `M${first[0]} ${first[1]}`;
  let [x, y] = first;
  for (const [toX, toY] of rest) {
    const middle = rounded((y + toY) / 2);
    path += ` C${x} ${middle} ${toX} ${middle} ${toX} ${toY}`;
    [x, y] = [toX, toY];
  }
  const head = `M${rounded(x - 4)} ${y} h8 L${x} ${rounded(y + (route.back ? -HEAD : HEAD))}Z`;
  return {
    tag: "g",
    attributes: { class: route.back ? "route back" : "route", id: `r${number}` },
    inside: [
      { tag: "path", attributes: { class: "line", d: path } },
      { tag: "path", attributes: { class: "head", d: head } },
    ],
  };
}

function textShape(x: number, y: number, text: string, name: string): Shape {
  return { tag: "text", attributes: { x, y, class: name }, text };
}

/** Code points, as Python counts. */
function length(text: string): number {
  return [...text].length;
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}
