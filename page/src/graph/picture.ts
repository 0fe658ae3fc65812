/** The drawing in the page: SVG nodes of the visible part, highlighted as an answer passes them. */

import type { Camera, Size } from "./camera";
import type { Index } from "./index_of";
import { hitOf, layersOf, lineOutline, nodeOf, outlinesOf, stateWords, wayWords, type Item } from "./shapes";
import { changed, NOTHING_PASSED, type Passed } from "./walk";
import type { Graph } from "./wire";

/** Below this scale only outlines are drawn, without text. */
const DETAILED = 0.35;
/** Distances from the window, in its sizes: nodes are added within NEAR and dropped beyond FAR. */
const [NEAR, FAR] = [0.5, 1.5];

export class Picture {
  readonly #place: SVGGElement;
  #graph: Graph | null = null;
  #index: Index | null = null;
  /** Items by layer, each with its node while it has one. */
  #layers: { node: SVGElement; items: { item: Item; node: SVGElement | null }[] }[] = [];
  #outlines: SVGElement | null = null;
  /** Nodes in the page of states, ways and routes, by id. */
  readonly #nodes = new Map<string, SVGElement>();

  #passed: Passed = NOTHING_PASSED;
  #routes = new Set<string>();
  #found: ReadonlySet<string> = new Set();
  #selected: string | null = null;

  constructor(svg: SVGSVGElement) {
    this.#place = svg.appendChild(nodeOf(["g", {}, []]) as SVGGElement);
  }

  /** Replaces the drawing by `graph`. The next `look` creates its nodes. */
  draw(graph: Graph, index: Index): void {
    [this.#graph, this.#index, this.#outlines] = [graph, index, null];
    this.#layers = layersOf(graph).map((items) => ({ node: nodeOf(["g", {}, []]), items: items.map((item) => ({ item, node: null })) }));
    this.#place.replaceChildren(...this.#layers.map(({ node }) => node));
    this.#nodes.clear();
    this.#passed = NOTHING_PASSED;
    this.#routes.clear();
  }

  /** Shows the camera's view. The cost is that of the nodes that become visible. */
  look(camera: Camera, window: Size): void {
    this.#place.setAttribute("transform", `translate(${camera.x} ${camera.y}) scale(${camera.scale})`);
    if (camera.scale < DETAILED) return this.#showOutlines();
    this.#outlines?.remove();
    const sees = (item: Item, beyond: number) =>
      item.right * camera.scale + camera.x > -beyond * window.width &&
      item.left * camera.scale + camera.x < (1 + beyond) * window.width &&
      item.bottom * camera.scale + camera.y > -beyond * window.height &&
      item.top * camera.scale + camera.y < (1 + beyond) * window.height;
    for (const layer of this.#layers) {
      for (const each of layer.items) {
        if (each.node === null && sees(each.item, NEAR)) layer.node.append((each.node = this.#shown(nodeOf(each.item.svg))));
        else if (each.node !== null && !sees(each.item, FAR)) each.node = this.#drop(each.node);
      }
    }
  }

  /** Highlights the path of a walk; updates only what differs from the last one. */
  show(passed: Passed): void {
    const ids = changed(this.#passed, passed);
    const before = this.#routes;
    this.#routes = this.#routesOf(passed);
    this.#passed = passed;
    for (const id of ids) this.#dress(id);
    for (const id of new Set([...before, ...this.#routes])) if (before.has(id) !== this.#routes.has(id)) this.#dress(id);
    if (this.#outlines?.isConnected) this.#lightOutlines();
  }

  select(id: string | null): void {
    const before = this.#selected;
    this.#selected = id;
    for (const each of [before, id]) if (each !== null) this.#dress(each);
  }

  /** Marks the matches of a search. */
  mark(ids: readonly string[]): void {
    const before = this.#found;
    this.#found = new Set(ids);
    for (const id of new Set([...before, ...ids])) this.#dress(id);
  }

  /** Adds tooltips, pointer areas and classes to a part of the drawing and each way in it. */
  #shown(part: SVGElement): SVGElement {
    for (const node of [part, ...part.querySelectorAll<SVGElement>("[id]")]) {
      if (!node.id) continue;
      this.#nodes.set(node.id, node);
      const index = this.#index!;
      const [state, way, line] = [index.states.get(node.id), index.ways.get(node.id), index.lines.get(node.id)];
      if (line) node.prepend(nodeOf(hitOf(index.boxes[line.box]!, line.y)));
      if (state || way) node.prepend(nodeOf(["title", {}, state ? stateWords(state) : wayWords(way!)]));
      this.#dress(node.id);
    }
    return part;
  }

  #drop(node: SVGElement): null {
    this.#nodes.delete(node.id);
    for (const each of node.querySelectorAll("[id]")) this.#nodes.delete(each.id);
    node.remove();
    return null;
  }

  /** Updates the classes of a state, way or route, and the count of a way. */
  #dress(id: string): void {
    const node = this.#nodes.get(id);
    if (!node) return;
    const visits = this.#passed.visits.get(id) ?? 0;
    node.classList.toggle("passed", visits > 0 || id === this.#passed.at || this.#routes.has(id));
    node.classList.toggle("here", id === this.#passed.at);
    node.classList.toggle("latest", id === this.#passed.fresh[0]);
    node.classList.toggle("fresh", this.#passed.fresh.includes(id));
    node.classList.toggle("found", this.#found.has(id));
    node.classList.toggle("selected", id === this.#selected);
    this.#count(node, id, visits);
  }

  /** Writes how often a way was taken next to its line, from the second time on. */
  #count(node: SVGElement, id: string, visits: number): void {
    const line = this.#index?.lines.get(id);
    if (!line) return;
    node.querySelector(".visits")?.remove();
    if (visits < 2) return;
    const box = this.#index!.boxes[line.box]!;
    node.append(nodeOf(["text", { class: "visits", x: box.x + box.width / 2 + 4, y: line.y + 4 }, `×${visits}`]));
  }

  #routesOf(passed: Passed): Set<string> {
    const routes = new Set<string>();
    for (const id of passed.visits.keys()) {
      const line = this.#index?.lines.get(id);
      for (const route of line ? (this.#index!.routes.get(line.box) ?? []) : []) routes.add(`r${route}`);
    }
    return routes;
  }

  #showOutlines(): void {
    if (this.#graph === null || this.#outlines?.isConnected) return;
    if (this.#outlines === null) {
      const paths = [...outlinesOf(this.#graph), ["lit", ""] as const];
      this.#outlines = nodeOf(["g", { class: "outlines" }, paths.map(([name, d]) => ["path", { class: name, d }, []])]);
    }
    this.#lightOutlines();
    for (const { items } of this.#layers) for (const each of items) if (each.node !== null) each.node = this.#drop(each.node);
    this.#place.append(this.#outlines);
  }

  #lightOutlines(): void {
    const index = this.#index!;
    const lines = [...this.#passed.visits.keys()].flatMap((id) => index.lines.get(id) ?? []);
    const path = lines.map(({ box, y }) => lineOutline(index.boxes[box]!, y)).join("");
    this.#outlines!.lastElementChild!.setAttribute("d", path);
  }
}
