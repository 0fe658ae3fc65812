/** The constraint's automaton as a drawing, with the path of the answer highlighted. */

import { constraintKind, schemaSpec } from "../state";
import { plural } from "../ui/number";
import { GraphCanvas } from "./canvas";
import { Refusal } from "./refusal";
import { refusal, registered, registering } from "./register";
import { StateList } from "./state_list";
import { GraphTools, Unfolded } from "./tools";
import { passed } from "./walker";
import "./graph.css";
import "./picture.css";

export function GraphPanel() {
  if (constraintKind.value === "none") return <p class="quiet graph-none">Free text has no graph: choose a schema, a regular expression or a grammar.</p>;
  const old = schemaSpec.value === null || refusal.value !== null;
  return (
    <div class="graph">
      <GraphTools />
      <Unfolded />
      <div class={old ? "graph-body old" : "graph-body"}>
        <GraphCanvas />
        <StateList />
      </div>
      <p class="graph-status quiet">
        <Status />
      </p>
      {refusal.value && <Refusal error={refusal.value} />}
      <GraphLegend />
    </div>
  );
}

/** The progress of the walk; before a walk, the size of the graph. */
function Status() {
  const found = registered.value;
  if (schemaSpec.value === null) return <>The graph is drawn once the constraint is valid.</>;
  if (refusal.value) return <>Graph of the last valid constraint.</>;
  if (found === null) return <>{registering.value ? "Drawing …" : ""}</>;
  if (found.undrawn !== null) return <>There is no graph: {found.undrawn}</>;
  const { at, complete, left, leapt, walked, visits } = passed.value;
  if (at === null) {
    const { states, ways, forced_share: share } = found.graph;
    return (
      <>
        {plural(states.length, "state")}, {plural(ways.length, "way")}; {Math.round(100 * share)} % of their text is forced.
      </>
    );
  }
  const taken = [...visits].reduce((sum, [id, count]) => (found.index.ways.has(id) ? sum + count : sum), 0);
  return (
    <>
      {plural(taken, "way")} taken, {plural(walked, "character")}, {walked ? Math.round((100 * leapt) / walked) : 0} % of them leaps.{" "}
      {left !== null ? `After character ${left} the answer leaves this graph.` : complete ? "The answer is complete." : ""}
    </>
  );
}

const LEGEND = [
  ["byte", "decided"],
  ["text", "free text, number"],
  ["rule", "another rule"],
  ["fold", "folded; click to open"],
  ["leap", "leap: no forward pass (· is a space)"],
  ["passed", "path of the answer"],
] as const;

function GraphLegend() {
  return (
    <ul class="graph-legend">
      {LEGEND.map(([kind, words]) => (
        <li key={kind}>
          <span class={`way-text ${kind}`} aria-hidden="true" />
          {words}
        </li>
      ))}
    </ul>
  );
}
