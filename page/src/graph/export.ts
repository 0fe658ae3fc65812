/** The drawing as an SVG file, in the colours on screen. */

import { layersOf, nodeOf } from "./shapes";
import type { Graph } from "./wire";

const MARGIN = 24;

export function svgText(graph: Graph, title: string): string {
  const [width, height] = [Math.ceil(graph.width + 2 * MARGIN), Math.ceil(graph.height + 2 * MARGIN)];
  const parts = layersOf(graph).flatMap((items) => items.map(({ svg }) => svg));
  const drawing = nodeOf([
    "svg",
    { width, height, viewBox: `${-MARGIN} ${-MARGIN} ${width} ${height}`, class: "picture" },
    [["title", {}, title], ["style", {}, pictureStyle()], ["rect", { class: "paper", x: -MARGIN, y: -MARGIN, width, height }, []], ...parts],
  ]);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(drawing)}\n`;
}

/** The style sheet rules of the drawing, with the colours of the current theme. */
function pictureStyle(): string {
  const colours = getComputedStyle(document.documentElement);
  return [...document.styleSheets]
    .flatMap((sheet) => [...sheet.cssRules])
    .filter((rule) => rule instanceof CSSStyleRule && rule.selectorText.startsWith(".picture"))
    .map((rule) => rule.cssText.replace(/var\((--[\w-]+)\)/g, (_, name: string) => colours.getPropertyValue(name).trim()))
    .join("\n");
}
