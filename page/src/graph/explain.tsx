/** The server's report on a schema: the fate of its keywords, and the lengths of answers. */

import { signal } from "@preact/signals";

import { apiFetch } from "../server/access";
import { constraintKind, goToPointer, model } from "../state";
import { plural } from "../ui/number";
import { useEffect } from "preact/hooks";
import { Refusal } from "./refusal";
import { refusal, registered, registering } from "./register";
import type { Explain, Fate } from "./wire";
import "./explain.css";

export function ExplainPanel() {
  if (constraintKind.value === "none") return <p class="quiet graph-none">Free text has nothing to explain.</p>;
  if (refusal.value) return <Refusal error={refusal.value} />;
  const found = registered.value;
  if (!found) return <p class="quiet graph-none">{registering.value ? "Reading …" : "Nothing to explain yet."}</p>;
  if (!found.explain) return <p class="quiet graph-none">{found.unexplained ?? "Only schemas have an explanation; see the graph."}</p>;
  return (
    <div class="explain">
      <Facts explain={found.explain} />
      <Relaxed explain={found.explain} />
      {FATES.map((fate) => (
        <Keywords key={fate.id} explain={found.explain!} {...fate} />
      ))}
      {!found.explain.whole && <p class="quiet">Lists are truncated; `leapjson explain` has all of them.</p>}
    </div>
  );
}

const FATES: readonly { id: Fate; words: string; open: boolean }[] = [
  { id: "refused", words: "Refused", open: true },
  { id: "not enforced", words: "Not enforced", open: true },
  { id: "no effect", words: "Without effect", open: true },
  { id: "enforced", words: "Enforced", open: true },
  { id: "annotation", words: "Annotations", open: false },
];

function Facts({ explain }: { explain: Explain }) {
  const { shortest, shortest_bytes: bytes, shortest_forced_bytes: forced, longest_bytes: longest } = explain;
  const whole = new TextEncoder().encode(shortest).length === bytes;
  return (
    <>
      <dl class="explain-facts">
        <div>
          <dt>shortest answer</dt>
          <dd>
            {plural(bytes, "byte")}
            {whole && <Tokens text={shortest} />}
          </dd>
        </div>
        <div>
          <dt>forced share of it</dt>
          <dd>{bytes ? Math.round((100 * forced) / bytes) : 0} %</dd>
        </div>
        <div>
          <dt>longest answer</dt>
          <dd>{longest === null ? "no limit" : `${explain.longest_is_exact ? "" : "at most "}${plural(longest, "byte")}`}</dd>
        </div>
        <div>
          <dt>branch points</dt>
          <dd>{explain.branch_points.toLocaleString("en")}</dd>
        </div>
        <div>
          <dt>ways, ways with leaps</dt>
          <dd>
            {explain.ways.toLocaleString("en")}, {explain.leaps.toLocaleString("en")}
          </dd>
        </div>
      </dl>
      <pre class="explain-shortest" tabIndex={0} role="region" aria-label="Shortest answer">
        {shortest}
      </pre>
    </>
  );
}

const counted = signal<{ text: string; model: string; tokens: number } | null>(null);

/** The number of tokens of a text, by the model's tokenizer. */
function Tokens({ text }: { text: string }) {
  const name = model.value;
  useEffect(() => {
    if (name) void count(text, name);
  }, [text, name]);
  const known = counted.value;
  if (known?.text !== text || known.model !== name) return null;
  return <>, {plural(known.tokens, "token")}</>;
}

async function count(text: string, name: string): Promise<void> {
  const body = JSON.stringify({ model: name, prompt: text, add_special_tokens: false });
  const response = await apiFetch("tokenize", { method: "POST", body }).catch(() => null);
  if (response?.ok) counted.value = { text, model: name, tokens: ((await response.json()) as { count: number }).count };
}

function Relaxed({ explain }: { explain: Explain }) {
  if (explain.relaxed.length === 0) return null;
  return (
    <details open>
      <summary>Relaxed: not enforced ({explain.relaxed.length})</summary>
      <ul>
        {explain.relaxed.map(({ pointer, keyword, reason }) => (
          <Line key={pointer + keyword} pointer={pointer} note={keyword ? `${keyword}: ${reason}` : reason} />
        ))}
      </ul>
    </details>
  );
}

function Keywords({ explain, id, words, open }: { explain: Explain; id: Fate; words: string; open: boolean }) {
  const uses = explain.keywords.filter(({ fate }) => fate === id);
  if (uses.length === 0) return null;
  return (
    <details open={open}>
      <summary>
        {words} ({uses.length})
      </summary>
      <ul class={id === "not enforced" || id === "no effect" ? "warns" : ""}>
        {uses.map(({ pointer, note }) => (
          <Line key={pointer} pointer={pointer} note={note} />
        ))}
      </ul>
    </details>
  );
}

function Line({ pointer, note }: { pointer: string; note: string }) {
  return (
    <li>
      <button type="button" class="explain-place" title="Show in the schema" onClick={() => goToPointer(pointer)}>
        <code>{pointer || "(root)"}</code>
      </button>
      <span class="quiet">{note}</span>
    </li>
  );
}
