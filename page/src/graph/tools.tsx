/** The tools above the drawing: search, zoom, export, and the unfolded values. */

import { effect, signal, useSignalEffect } from "@preact/signals";

import { nameOf, schema } from "../state";
import { plural } from "../ui/number";
import { svgText } from "./export";
import { drawWith, FEW_STATES, graphOptions, registered } from "./register";
import { matchesOf } from "./search";
import { canvas, select, turn } from "./shown";

const MANY_STATES = 2000;
const ZOOM = 1.25;

const wanted = signal("");
const matches = signal<readonly string[]>([]);
/** Index of the match that is shown; -1: none yet. */
const shown = signal(-1);

effect(() => {
  const found = registered.value;
  matches.value = found ? matchesOf(found.graph, found.index, wanted.value) : [];
  shown.value = -1;
});

export function GraphTools() {
  useSignalEffect(() => canvas.value?.picture.mark(matches.value));
  const made = canvas.value;
  const none = registered.value === null;
  return (
    <div class="graph-tools" role="group" aria-label="Graph">
      <Search />
      <div class="graph-buttons">
        <button type="button" class="small" aria-label="Smaller" title="Smaller (-)" disabled={none} onClick={() => made?.view.zoom(1 / ZOOM)}>
          −
        </button>
        <button type="button" class="small" aria-label="Larger" title="Larger (+)" disabled={none} onClick={() => made?.view.zoom(ZOOM)}>
          +
        </button>
        <button type="button" class="small" title="Fit to view (0)" disabled={none} onClick={() => made?.view.fit()}>
          Fit
        </button>
        <button
          type="button"
          class="small"
          title="Follow the answer"
          aria-pressed={made?.view.following.value ?? true}
          disabled={none}
          onClick={() => made && (made.view.following.value = !made.view.following.value)}
        >
          Follow
        </button>
        <button type="button" class="small" disabled={none} onClick={saveSvg}>
          SVG
        </button>
        <button type="button" class="small" title="Graphviz text" disabled={none} onClick={saveDot}>
          DOT
        </button>
      </div>
    </div>
  );
}

function Search() {
  const step = (by: number) => {
    const count = matches.value.length;
    if (count === 0) return;
    shown.value = shown.value < 0 ? (by > 0 ? 0 : count - 1) : (shown.value + by + count) % count;
    select(matches.value[shown.value]!);
  };
  const count = matches.value.length;
  const said = wanted.value.trim() === "" ? "" : shown.value < 0 ? plural(count, "match", "matches") : `${shown.value + 1} of ${count}`;
  return (
    <div class="graph-search">
      <input
        type="search"
        id="graph-search"
        aria-label="Search the graph"
        placeholder="Search"
        spellcheck={false}
        value={wanted.value}
        onInput={(event) => (wanted.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter") return;
          event.preventDefault();
          step(event.shiftKey ? -1 : 1);
        }}
      />
      <button type="button" class="small" aria-label="Previous match" title="Previous match (Shift+Enter)" disabled={count === 0} onClick={() => step(-1)}>
        ↑
      </button>
      <button type="button" class="small" aria-label="Next match" title="Next match (Enter)" disabled={count === 0} onClick={() => step(1)}>
        ↓
      </button>
      <span class="quiet" role="status">
        {said}
      </span>
    </div>
  );
}

/** The unfolded values, each with a button that folds it, and whether the graph was cut. */
export function Unfolded() {
  const { open, max_states: most } = graphOptions.value;
  const cut = registered.value !== null && !registered.value.graph.whole;
  return (
    <div class="graph-unfolded">
      {open.map((pointer) => (
        <button key={pointer} type="button" class="small" title={`Fold ${pointer} again`} onClick={() => turn(pointer)}>
          <code>{pointer || "(root)"}</code> <span aria-hidden="true">×</span>
          <span class="visually-hidden">: fold again</span>
        </button>
      ))}
      {cut && <span class="quiet">Cut at {plural(registered.value!.graph.states.length, "state")}.</span>}
      {cut && most === FEW_STATES && (
        <button type="button" class="small" onClick={() => drawWith({ max_states: MANY_STATES })}>
          Draw more
        </button>
      )}
    </div>
  );
}

function saveSvg(): void {
  save("svg", "image/svg+xml", svgText(registered.value!.graph, title()));
}

function saveDot(): void {
  save("dot", "text/vnd.graphviz", registered.value!.graph.dot);
}

function title(): string {
  return nameOf(schema.value?.value);
}

function save(ending: string, type: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  Object.assign(document.createElement("a"), { href: address, download: `${title()}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
