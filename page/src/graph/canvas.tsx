/** The window with the drawing. */

import { effect, untracked } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { listen } from "./gestures";
import { placeOf, type Index } from "./index_of";
import { Picture } from "./picture";
import { registered, registering, type Registered } from "./register";
import { canvas, follow, listed, selected, turned, type Canvas } from "./shown";
import { View } from "./view";
import { passed } from "./walker";
import type { Graph } from "./wire";

const HELP = "graph-help";

export function GraphCanvas() {
  const element = useRef<HTMLDivElement>(null);
  const drawing = useRef<SVGSVGElement>(null);
  useEffect(() => {
    const picture = new Picture(drawing.current!);
    const made = { picture, view: new View(element.current!, picture) };
    canvas.value = made;
    const undo = [
      listen(element.current!, made.view, () => goToStart(made)),
      effect(() => {
        if (registered.value) draw(made, registered.value);
      }),
      effect(() => picture.select(selected.value)),
      effect(() => walk(made)),
    ];
    return () => {
      canvas.value = null;
      undo.forEach((each) => each());
      made.view.close();
    };
  }, []);
  const graph = registered.value?.graph;
  const words = graph ? `Graph with ${graph.states.length} states and ${graph.ways.length} ways` : "Graph";
  return (
    <>
      <div
        ref={element}
        class="graph-window"
        tabIndex={0}
        role="application"
        aria-label={words}
        aria-describedby={HELP}
        aria-busy={registering.value}
        onClick={(event) => click(event)}
        onKeyDown={(event) => {
          if (event.key === "Enter") follow(selected.value ?? listed.value?.id ?? "");
        }}
      >
        <svg ref={drawing} class="picture" aria-hidden="true" />
      </div>
      <p id={HELP} class="visually-hidden">
        Arrow keys move the drawing, plus and minus change its size, 0 shows all of it, Home its start, Enter leads to the place in the schema. The list that
        follows has the ways from a state.
      </p>
    </>
  );
}

function draw(made: Canvas, { graph, index }: Registered): void {
  const [pointer, stay] = [turned.peek(), turned.peek() !== null || !made.view.following.peek()];
  turned.value = null;
  selected.value = null;
  made.picture.draw(graph, index);
  made.view.open(graph, graph.states[0] ?? { x: 0, y: 0 }, stay);
  const place = pointer === null ? null : placeUnder(graph, index, pointer);
  if (place) made.view.show(place);
  untracked(() => walk(made));
}

/** The position of the first way inside the value at `pointer`, or of its fold. */
function placeUnder(graph: Graph, index: Index, pointer: string) {
  const under = (each: string | null) => each !== null && (each === pointer || each.startsWith(`${pointer}/`));
  const way = graph.ways.find((each) => under(each.pointer) || each.open === pointer);
  return way ? placeOf(index, way.id) : null;
}

function walk({ picture, view }: Canvas): void {
  const index = registered.value?.index;
  picture.show(passed.value);
  const at = index && passed.value.at !== null ? index.states.get(passed.value.at) : null;
  if (at && view.following.value) view.show(at);
}

function goToStart({ view }: Canvas): void {
  const start = registered.peek()?.graph.states[0];
  if (start) view.visit(start);
}

function click(event: MouseEvent): void {
  const found = event.target instanceof Element ? event.target.closest(".way, .state") : null;
  if (found) follow(found.id);
  else canvas.peek()?.view.enlarge(event.clientX, event.clientY);
}
