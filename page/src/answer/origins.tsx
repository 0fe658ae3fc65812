/** Names and meanings of the four origins, and the bar and legend with their counts. */

import type { Counts, Source } from "./tokens";
import { SOURCES } from "./tokens";
import "./origins.css";

export const NAMES: Readonly<Record<Source, string>> = { sampled: "sampled", drafted: "drafted", held: "held back", leapt: "leapt" };

export const MEANINGS: Readonly<Record<Source, string>> = {
  sampled: "sampled by the model, one forward pass each",
  drafted: "drafted, then confirmed in a forward pass of another token",
  held: "the end of a leap, sampled by the model",
  leapt: "forced by the schema, without a forward pass",
};

/** The shares of the origins, as one bar. */
export function OriginBar({ counts }: { counts: Counts }) {
  const total = SOURCES.reduce((sum, source) => sum + counts[source], 0);
  const said = SOURCES.filter((source) => counts[source] > 0).map((source) => `${counts[source]} ${NAMES[source]}`);
  return (
    <div class="origin-bar" role="img" aria-label={said.length ? `Tokens: ${said.join(", ")}` : "No tokens yet"}>
      {SOURCES.map((source, order) => {
        const before = SOURCES.slice(0, order).reduce((sum, each) => sum + counts[each], 0);
        // Each segment covers those before it; it is moved, not resized, to avoid a new layout.
        return <span key={source} class={`swatch ${source}`} style={{ transform: `translateX(${total ? (100 * before) / total : 100}%)` }} />;
      })}
    </div>
  );
}

/** The colours and patterns with their counts. */
export function Legend({ counts }: { counts: Counts }) {
  return (
    <ul class="legend">
      {SOURCES.map((source) => (
        <li key={source} title={MEANINGS[source]}>
          <span class={`swatch ${source}`} aria-hidden="true" />
          <span class={`token ${source}`}>{NAMES[source]}</span>
          <strong data-source={source}>{counts[source]}</strong>
          <span class="meaning">{MEANINGS[source]}</span>
        </li>
      ))}
    </ul>
  );
}
