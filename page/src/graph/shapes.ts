/** The SVG elements of a graph, drawn by the server: their bounds, outlines, and nodes for the page. */

import type { Box, Element, Graph, State, Way } from "./wire";

const SVG = "http://www.w3.org/2000/svg";
/** Sizes in the server's drawing, in pixels: character width, line height of a box, state radius. */
const ADVANCE = 7.3;
const LINE = 19;
const RIM = 13;
/** Extra space for the arrow head of a line. */
const HEAD = 7;
/** Extra space beside a box for the counts of its ways. */
const COUNT = 36;

/** The y coordinate of the middle of a box's line. */
export function lineY(box: Box, line: number): number {
  return box.y - box.height / 2 + 4 + (line + 0.5) * LINE;
}

/** A part of the drawing, with its bounding rectangle. */
export interface Item {
  left: number;
  top: number;
  right: number;
  bottom: number;
  svg: Element;
}

/** The drawing in three layers, from the bottom up. */
export function layersOf(graph: Graph): Item[][] {
  return [
    graph.routes.map(({ points, svg }) => {
      const [x, y] = [points.map((point) => point[0]), points.map((point) => point[1])];
      return { left: Math.min(...x) - HEAD, top: Math.min(...y) - HEAD, right: Math.max(...x) + HEAD, bottom: Math.max(...y) + HEAD, svg };
    }),
    graph.boxes.map(({ x, y, width, height, svg }) => {
      return { left: x - width / 2, top: y - height / 2, right: x + width / 2 + COUNT, bottom: y + height / 2 + LINE, svg };
    }),
    graph.states.map(({ x, y, note, svg }) => {
      return { left: x - RIM, top: y - RIM, right: x + RIM + [...note].length * ADVANCE + 3, bottom: y + RIM, svg };
    }),
  ];
}

/** The drawing without text, for scales at which text is unreadable: one path for each class. */
export function outlinesOf(graph: Graph): Map<string, string> {
  const paths = new Map<string, string[]>([["line", []], ["frame", []]]);
  const put = (name: string, path: string) => {
    const known = paths.get(name);
    if (known) known.push(path);
    else paths.set(name, [path]);
  };
  const trace = ([tag, told, inside]: Element): void => {
    const name = String(told.class);
    if (tag === "rect") put(name, rectangle(Number(told.x), Number(told.y), Number(told.width), Number(told.height)));
    else if (name === "line") put(name, String(told.d));
    else if (name === "rim") put(name, circle(Number(told.cx), Number(told.cy), Number(told.r)));
    if (typeof inside !== "string") inside.forEach(trace);
  };
  for (const item of layersOf(graph).flat()) trace(item.svg);
  return new Map([...paths].map(([name, parts]) => [name, parts.join("")]));
}

/** A way's line in an outline. */
export function lineOutline(box: Box, y: number): string {
  return rectangle(box.x - box.width / 2, y - LINE / 2, box.width, LINE);
}

function rectangle(x: number, y: number, width: number, height: number): string {
  return `M${x} ${y}h${width}v${height}h${-width}z`;
}

function circle(x: number, y: number, radius: number): string {
  return `M${x - radius} ${y}a${radius} ${radius} 0 1 0 ${2 * radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0`;
}

export function nodeOf([tag, attributes, inside]: Element): SVGElement {
  const node = document.createElementNS(SVG, tag) as SVGElement;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  if (typeof inside === "string") node.textContent = inside;
  else node.append(...inside.map(nodeOf));
  return node;
}

/** The area of a way's line that reacts to the pointer. */
export function hitOf(box: Box, y: number): Element {
  return ["rect", { class: "hit", x: box.x - box.width / 2 + 2, y: y - LINE / 2 + 0.5, width: box.width - 4, height: LINE - 1, rx: 4 }, []];
}

/** The description of a way, for tooltips and screen readers. */
export function wayWords(way: Way): string {
  const words = [];
  if (way.kind === "fold") words.push(`folded: ${way.choice}`);
  else if (way.choice) words.push(way.choice);
  if (way.leap) words.push(`leap ${way.leap}`);
  return words.join(", then ") || "(nothing)";
}

/** The description of a state; `note` has what it repeats, and whether the answer may end. */
export function stateWords(state: State): string {
  return state.note ? `State ${state.label}: ${state.note}` : `State ${state.label}`;
}
