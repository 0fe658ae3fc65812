/** The drawing as files: SVG, and Graphviz text. */

import { shapesOf, wayWords, type Shape } from "./shapes";
import type { Graph, Kind } from "./wire";

const MARGIN = 24;

/** An SVG document of its own. `style` is put into it. */
export function svgText(graph: Graph, title: string, style: string): string {
  const [width, height] = [Math.ceil(graph.width + 2 * MARGIN), Math.ceil(graph.height + 2 * MARGIN)];
  const drawing: Shape = {
    tag: "svg",
    attributes: { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `${-MARGIN} ${-MARGIN} ${width} ${height}`, class: "picture" },
    inside: [
      { tag: "title", attributes: {}, text: title },
      { tag: "style", attributes: {}, text: style },
      { tag: "rect", attributes: { class: "paper", x: -MARGIN, y: -MARGIN, width, height } },
      ...shapesOf(graph),
    ],
  };
  return `<?xml version="1.0" encoding="UTF-8"?>\n${textOf(drawing)}\n`;
}

function textOf(shape: Shape): string {
  const attributes = Object.entries(shape.attributes).map(([name, value]) => ` ${name}="${escaped(String(value))}"`);
  const inside = shape.text === undefined ? (shape.inside ?? []).map(textOf).join("") : escaped(shape.text);
  return `<${shape.tag}${attributes.join("")}>${inside}</${shape.tag}>${shape.tag === "g" ? "\n" : ""}`;
}

function escaped(text: string): string {
  const signs: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  // XML 1.0 has no control characters but these three, and no halves of surrogate pairs.
  return text.replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd").replace(/[&<>"]/g, (sign) => signs[sign]!);
}

const LOOKS: Readonly<Record<Kind, string>> = {
  start: "solid",
  byte: "solid",
  class: "solid",
  text: "dotted",
  rule: "dashed",
  fold: "bold",
};

/** The graph in Graphviz' language: states are nodes, each way is an edge. */
export function dotText(graph: Graph, title: string): string {
  const lines = [`digraph ${quoted(title)} {`, "  rankdir=TB;", '  node [shape=circle, fontname="monospace", fontsize=10];', '  edge [fontname="monospace", fontsize=9];'];
  for (const state of graph.states) {
    const shape = state.accepting ? ", shape=doublecircle" : "";
    const note = state.note ? `, xlabel=${quoted(state.note)}` : "";
    lines.push(`  ${quoted(state.id)} [label=${quoted(state.label)}${shape}${note}];`);
  }
  for (const way of graph.ways) {
    if (way.target === null) lines.push(`  ${quoted(`${way.id}.cut`)} [label="...", shape=plaintext];`);
    const target = way.target ?? `${way.id}.cut`;
    lines.push(`  ${quoted(way.source)} -> ${quoted(target)} [id=${quoted(way.id)}, label=${quoted(wayWords(way))}, style=${LOOKS[way.kind]}];`);
  }
  return [...lines, "}", ""].join("\n");
}

/** A quoted string of Graphviz, in which backslashes begin escapes. */
function quoted(text: string): string {
  return `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n").replaceAll("\r", "")}"`;
}
