/** The model's probability of each value of the answer, and which values are quotes. */

import { useSignal } from "@preact/signals";

import { goToSpan } from "../request/prompt";
import { answerConfidence, confidenceWanted, constraintKind, goToPointer, schema, type ConfidenceEntry } from "../state";
import { plural, probability } from "../ui/number";
import { placeInSchema } from "./place";
import { lookedAt, quotes, isUnchanged } from "./quotes";
import "./confidence.css";

/** Number of values shown at first, and added by each click on "Show more". */
const PAGE = 100;
/** Number of alternatives shown at first. */
const FIRST_ALTERNATIVES = 3;
/** Below this mass, the schema lacks what the model wanted to write. */
const LOW_MASS = 0.5;

export function ConfidencePanel() {
  const entries = answerConfidence.value;
  if (entries === null) return <Placeholder />;
  if (entries.length === 0) return <p class="quiet">The answer has no values.</p>;
  return <Values entries={entries} />;
}

function Placeholder() {
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
  const changed = [...quotes.value.values()].some((span) => !isUnchanged(span));
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
        <ValueName entry={entry} />
        <ChoiceText choice={entry} />
        <strong>{probability(entry.probability)}</strong>
      </div>
      <Bar share={entry.probability} />
      <Alternatives entry={entry} />
      <Notes entry={entry} />
      {quote && isUnchanged(quote) && (
        <button type="button" class="small" onClick={() => goToSpan(quote)}>
          Show the quote in the prompt
        </button>
      )}
    </li>
  );
}

/** The value's name; with a schema, a link to its subschema. */
function ValueName({ entry }: { entry: ConfidenceEntry }) {
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

type Choice = NonNullable<ConfidenceEntry["alternatives"]>[number];

/** Text for a chosen value or an alternative: JSON or a description. */
function textOf(choice: ConfidenceEntry | Choice): string {
  if ("value" in choice) return JSON.stringify(choice.value);
  if ("next" in choice) return choice.next === null ? "ends here" : typeof choice.next === "number" ? `goes on with item ${choice.next}` : `goes on with ${JSON.stringify(choice.next)}`;
  if ("type" in choice) return `another ${choice.type}`;
  if ("other" in choice) return plural(choice.other!, "other");
  return "all of its parts";
}

function ChoiceText({ choice }: { choice: ConfidenceEntry | Choice }) {
  return "value" in choice ? <code>{textOf(choice)}</code> : <span>{textOf(choice)}</span>;
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
      <AlternativeList others={others.slice(0, FIRST_ALTERNATIVES)} label={`In place of ${textOf(entry)}`} />
      {others.length > FIRST_ALTERNATIVES && (
        <details>
          <summary>{plural(others.length - FIRST_ALTERNATIVES, "more alternative")}</summary>
          <AlternativeList others={others.slice(FIRST_ALTERNATIVES)} label={`Also in place of ${textOf(entry)}`} />
        </details>
      )}
    </>
  );
}

function AlternativeList({ others, label }: { others: readonly Choice[]; label: string }) {
  return (
    <ul class="alternatives" aria-label={label}>
      {others.map((other) => (
        <li key={textOf(other)}>
          <ChoiceText choice={other} />
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
          The model gave only {probability(mass)} to everything that the schema allows here: it mostly wanted to write something else. The probability above is a share of these {probability(mass)}.
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
