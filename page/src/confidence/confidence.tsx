/** How sure the model was of each value of the answer, and which of them the prompt says. */

import { useSignal } from "@preact/signals";

import { goToSpan } from "../request/prompt";
import { answerConfidence, confidenceWanted, constraintKind, goToPointer, schema, type ConfidenceEntry } from "../state";
import { plural, probability } from "../ui/number";
import { placeInSchema } from "./place";
import { lookedAt, quotes, stillThere } from "./quotes";
import "./confidence.css";

/** Values that are shown at first, and with each press of "more". */
const PAGE = 100;
/** Alternatives that are shown without being asked for. */
const FEW = 3;
/** Below this share of what the model wanted to say, the schema lacks something. */
const LOW_MASS = 0.5;

export function ConfidencePanel() {
  const entries = answerConfidence.value;
  if (entries === null) return <Nothing />;
  if (entries.length === 0) return <p class="quiet">The answer has no values.</p>;
  return <Values entries={entries} />;
}

function Nothing() {
  const free = constraintKind.value === "none";
  const why = free
    ? "Free text has no values. Choose a schema, a regular expression or a grammar."
    : confidenceWanted.value
      ? "Available at the end of an answer."
      : "The probability of each value, its alternatives, and the position of quotes in the prompt. This request did not ask for it.";
  return (
    <div class="confidence">
      <p class="quiet">{why}</p>
      {!free && !confidenceWanted.value && (
        <button type="button" class="small" onClick={() => (confidenceWanted.value = true)}>
          Ask for it with the next run
        </button>
      )}
    </div>
  );
}

function Values({ entries }: { entries: readonly ConfidenceEntry[] }) {
  const leastFirst = useSignal(false);
  const shown = useSignal(PAGE);
  const order = leastFirst.value ? [...entries].sort((a, b) => a.probability - b.probability) : entries;
  const changed = [...quotes.value.values()].some((span) => !stillThere(span));
  return (
    <div class="confidence">
      <div class="confidence-tools">
        <p class="quiet">The model's own probability of each value, not the truth.</p>
        <label class="check">
          <input type="checkbox" checked={leastFirst.value} onChange={(event) => (leastFirst.value = event.currentTarget.checked)} />
          least sure first
        </label>
      </div>
      {changed && <p class="quiet">The prompt has changed: quotes are no longer marked in it.</p>}
      <ol class="values">
        {order.slice(0, shown.value).map((entry) => (
          <Value key={`${"next" in entry ? "next" : "value" in entry ? "value" : "all"}${entry.pointer}${entries.indexOf(entry)}`} entry={entry} />
        ))}
      </ol>
      {order.length > shown.value && (
        <button type="button" class="small" onClick={() => (shown.value += PAGE)}>
          Show more ({order.length - shown.value} left)
        </button>
      )}
    </div>
  );
}

function Value({ entry }: { entry: ConfidenceEntry }) {
  const { pointer } = entry;
  const quote = "value" in entry ? quotes.value.get(pointer) : undefined;
  const look = () => (lookedAt.value = quote ? pointer : null);
  const leave = () => (lookedAt.value = null);
  return (
    <li class={lookedAt.value === pointer && quote ? "value looked-at" : "value"} onPointerEnter={look} onPointerLeave={leave} onFocusIn={look} onFocusOut={leave}>
      <div class="value-head">
        <Where entry={entry} />
        <Said told={entry} />
        <strong>{probability(entry.probability)}</strong>
      </div>
      <Bar share={entry.probability} />
      <Alternatives entry={entry} />
      <Notes entry={entry} />
      {quote && stillThere(quote) && (
        <button type="button" class="small" onClick={() => goToSpan(quote)}>
          Show the quote in the prompt
        </button>
      )}
    </li>
  );
}

/** The value's name; with a schema it leads to the place there. */
function Where({ entry }: { entry: ConfidenceEntry }) {
  const { pointer } = entry;
  const name = pointer || "the answer";
  const root = schema.value;
  if (!root) return <span class="where">{name}</span>;
  return (
    <button type="button" class="where" aria-label={`${name}: show its place in the schema`} onClick={() => goToPointer(placeInSchema(root.value, pointer, entry.value))}>
      {name}
    </button>
  );
}

type Told = NonNullable<ConfidenceEntry["alternatives"]>[number];

/** What was chosen, or could have been, in JSON or in words. */
function said(told: ConfidenceEntry | Told): string {
  if ("value" in told) return JSON.stringify(told.value);
  if ("next" in told) return told.next === null ? "ends here" : typeof told.next === "number" ? `goes on with item ${told.next}` : `goes on with ${JSON.stringify(told.next)}`;
  if ("type" in told) return `another ${told.type}`;
  if ("other" in told) return plural(told.other!, "other");
  return "all that is in it";
}

function Said({ told }: { told: ConfidenceEntry | Told }) {
  return "value" in told ? <code>{said(told)}</code> : <span>{said(told)}</span>;
}

function Bar({ share }: { share: number }) {
  return (
    <span class="share-bar" aria-hidden="true">
      <span style={{ width: `${100 * share}%` }} />
    </span>
  );
}

function Alternatives({ entry }: { entry: ConfidenceEntry }) {
  const others = entry.alternatives ?? [];
  if (others.length === 0) return null;
  return (
    <>
      <AlternativeList others={others.slice(0, FEW)} label={`In place of ${said(entry)}`} />
      {others.length > FEW && (
        <details>
          <summary>{plural(others.length - FEW, "more alternative")}</summary>
          <AlternativeList others={others.slice(FEW)} label={`Also in place of ${said(entry)}`} />
        </details>
      )}
    </>
  );
}

function AlternativeList({ others, label }: { others: readonly Told[]; label: string }) {
  return (
    <ul class="alternatives" aria-label={label}>
      {others.map((other) => (
        <li key={said(other)}>
          <Said told={other} />
          <Bar share={other.probability} />
          <span>{probability(other.probability)}</span>
        </li>
      ))}
    </ul>
  );
}

function Notes({ entry: { tokens, least_likely: least, mass } }: { entry: ConfidenceEntry }) {
  return (
    <>
      {mass !== undefined && mass < LOW_MASS && (
        <p class="low-mass">
          The model gave {probability(mass)} to all that the schema admits here: it mostly wanted to say something else, and the figure above is among what was left.
        </p>
      )}
      {least && (
        <p class="quiet">
          {plural(tokens ?? 0, "token")}, the least likely <code>{JSON.stringify(least.token)}</code> with {probability(least.probability)}
        </p>
      )}
    </>
  );
}
