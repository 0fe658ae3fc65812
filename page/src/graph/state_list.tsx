/** A state and its ways as a list, for keyboards and screen readers. */

import { useRef } from "preact/hooks";

import { constraintKind } from "../state";
import { plural } from "../ui/number";
import { registered } from "./register";
import { stateWords, wayWords } from "./shapes";
import { inSchema, listed, select, turn } from "./shown";
import { passed } from "./walker";
import type { Way } from "./wire";

/** Maximum ways of a state in the list. */
const LISTED = 60;

export function StateList() {
  const heading = useRef<HTMLHeadingElement>(null);
  const state = listed.value;
  const index = registered.value?.index;
  if (!state || !index) return <div class="graph-state" />;
  const ways = index.leaving.get(state.id) ?? [];
  const before = [...new Set((index.coming.get(state.id) ?? []).map((way) => way.source))];
  const go = (id: string) => {
    select(id);
    heading.current?.focus();
  };
  return (
    <section class="graph-state" aria-labelledby="graph-state-title">
      <h3 id="graph-state-title" ref={heading} tabIndex={-1}>
        {stateWords(state)}
      </h3>
      <p class="graph-links">
        {state.id === passed.value.at && <span class="quiet">Current state of the answer.</span>}
        <Place pointer={state.pointer} />
        {before.slice(0, 8).map((id) => (
          <button key={id} type="button" class="small plain" onClick={() => go(id)}>
            ← {index.states.get(id)?.label}
            <span class="visually-hidden">: back to that state</span>
          </button>
        ))}
      </p>
      <ul>
        {ways.slice(0, LISTED).map((way) => (
          <WayItem key={way.id} way={way} target={index.states.get(way.target ?? "")?.label ?? null} go={go} />
        ))}
        {ways.length > LISTED && <li class="quiet">and {plural(ways.length - LISTED, "way")} more; the search finds them</li>}
        {ways.length === 0 && <li class="quiet">Final state: the answer ends here.</li>}
      </ul>
    </section>
  );
}

function WayItem({ way, target, go }: { way: Way; target: string | null; go: (id: string) => void }) {
  const visits = passed.value.visits.get(way.id) ?? 0;
  return (
    <li>
      <button
        type="button"
        class="graph-way"
        disabled={way.target === null}
        aria-label={`${wayWords(way)}, ${target === null ? "not drawn further" : `to state ${target}`}${visits ? `, taken ${plural(visits, "time")}` : ""}`}
        onClick={() => go(way.target!)}
      >
        <span>
          {way.choice && <code class={`way-text ${way.kind}`}>{way.choice}</code>}
          {way.leap && <code class="way-text leap">{way.leap}</code>}
          {!way.choice && !way.leap && "(nothing)"}
        </span>
        <span class="graph-target">
          {visits > 0 && <b>×{visits}</b>} → {target ?? "…"}
        </span>
      </button>
      {way.open !== null && (
        <button type="button" class="small plain" onClick={() => turn(way.open!)}>
          Unfold<span class="visually-hidden"> {way.choice}</span>
        </button>
      )}
      <Place pointer={way.pointer} />
    </li>
  );
}

function Place({ pointer }: { pointer: string | null }) {
  if (pointer === null || constraintKind.value !== "schema") return null;
  return (
    <button type="button" class="small plain graph-place" title="Show in the schema" onClick={() => inSchema(pointer)}>
      <code>{pointer || "(root)"}</code>
    </button>
  );
}
