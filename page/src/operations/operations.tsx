/** The operations tab: `/metrics` over the last minutes. It needs no Prometheus. */

import { useEffect, useMemo } from "preact/hooks";

import { keyWanted } from "../state";
import { bytes, duration, figure, plural } from "../ui/number";
import type { Sample } from "./exposition";
import { INTERVAL, type Gap, type Slot } from "./history";
import { PlotView } from "./plot";
import { PLOTS } from "./plots";
import { askNow, history, latest, lookedAt, measure, paused, seconds, trouble, WINDOWS } from "./store";

export function Operations() {
  useEffect(measure, []);
  const end = latest.value?.time ?? Date.now() / 1000;
  const slots = useMemo(() => (latest.value ? history.slots(seconds.value) : []), [latest.value, seconds.value]);
  const chosen = slotAt(slots, lookedAt.value);
  const when = lookedAt.value === null || !chosen ? "now" : clock(chosen.time);
  return (
    <div class="operations">
      <h2 class="visually-hidden">Operations</h2>
      <Controls slots={slots} chosen={chosen} />
      <div class="report">
        <Status />
        <Interruptions slots={slots} />
      </div>
      <Vitals />
      <div class="plots">
        {PLOTS.map((plot) => (
          <PlotView key={plot.id} plot={plot} slots={slots} end={end} chosen={chosen} when={when} />
        ))}
      </div>
    </div>
  );
}

/** The slot nearest to a time; for null, the last one. */
function slotAt(slots: readonly Slot[], time: number | null): Slot | undefined {
  if (time === null) return slots.at(-1);
  return slots.reduce<Slot | undefined>((best, slot) => (best && Math.abs(best.time - time) <= Math.abs(slot.time - time) ? best : slot), undefined);
}

function clock(time: number): string {
  return new Date(time * 1000).toLocaleTimeString("en", { hour12: false });
}

function Controls({ slots, chosen }: { slots: readonly Slot[]; chosen: Slot | undefined }) {
  const last = Math.max(0, slots.length - 1);
  const at = chosen ? slots.indexOf(chosen) : last;
  const look = (slot: number) => (lookedAt.value = slot >= last ? null : (slots[slot]?.time ?? null));
  const words = !chosen || at === last ? "now" : `${clock(chosen.time)}${chosen.point === null ? ", not measured" : ""}`;
  return (
    <div class="card controls">
      <fieldset class="window">
        <legend class="visually-hidden">Time shown</legend>
        <div class="segments">
          {WINDOWS.map((each) => (
            <label key={each} class={seconds.value === each ? "on" : ""}>
              <input type="radio" name="window" value={each} checked={seconds.value === each} onChange={() => (seconds.value = each)} />
              {each / 60} min
            </label>
          ))}
        </div>
      </fieldset>
      <button type="button" id="pause" onClick={() => (paused.value = !paused.value)}>
        {paused.value ? "Resume" : "Pause"}
      </button>
      <div class="look">
        <label for="look">Values at</label>
        <input id="look" type="range" min={0} max={last} value={at} disabled={last === 0} aria-valuetext={words} onInput={(event) => look(event.currentTarget.valueAsNumber)} />
        <output for="look">{words}</output>
      </div>
    </div>
  );
}

/** Whether metrics arrive, and if not, the reason. */
function Status() {
  const found = trouble.value;
  return (
    <div class={`status ${!paused.value && found ? "bad" : ""}`} role="status">
      {paused.value && <p>Paused: metrics are not updated.</p>}
      {!paused.value && !found && <p class="quiet">{latest.value ? `Updated every ${INTERVAL} seconds while this tab is visible.` : "Loading …"}</p>}
      {!paused.value && found?.kind === "key" && (
        <>
          <p>{found.refused ? "The server refuses this API key for its metrics." : "The server needs an API key for its metrics."}</p>
          <button type="button" class="small" onClick={() => (keyWanted.value = true)}>
            Enter a key
          </button>
        </>
      )}
      {!paused.value && found?.kind === "away" && (
        <>
          <p>The server returns no metrics. {found.message} Retrying at least every 30 seconds.</p>
          <button type="button" class="small" onClick={askNow}>
            Retry now
          </button>
        </>
      )}
    </div>
  );
}

/** Model, version, uptime and memory of the server, and alarms. */
function Vitals() {
  const scrape = latest.value;
  if (!scrape) return null;
  const value = (name: string) => scrape.samples.find((sample) => sample.name === name)?.value;
  const build = scrape.samples.find(({ name }) => name === "leapjson_build_info")?.labels;
  const started = value("process_start_time_seconds");
  const memory = value("process_resident_memory_bytes");
  const skipped = value("leapjson_tokens_skipped_total") ?? 0;
  const tokens = skipped + tokensFrom(scrape.samples, "sampled");
  return (
    <>
      {value("leapjson_engine_up") === 0 && <p class="alarm" role="alert">The engine died: restart the server to answer requests again.</p>}
      {value("leapjson_draining") === 1 && <p class="alarm" role="alert">The server is shutting down: it finishes running answers and refuses new requests.</p>}
      <dl class="vitals">
        {build && <Vital name="model" value={build.get("model") ?? ""} />}
        {build && <Vital name="version" value={build.get("version") ?? ""} />}
        {started !== undefined && <Vital name="up for" value={uptime(scrape.time - started)} />}
        {memory !== undefined && <Vital name="memory" value={bytes(memory)} />}
        <Vital name="skipped since the start" value={tokens ? `${Math.round((100 * skipped) / tokens)} % of ${plural(tokens, "answer token")}` : "no answer yet"} />
      </dl>
    </>
  );
}

function tokensFrom(samples: readonly Sample[], source: string): number {
  return samples.find(({ name, labels }) => name === "leapjson_tokens_total" && labels.get("source") === source)?.value ?? 0;
}

function Vital({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function uptime(passed: number): string {
  if (passed < 120) return duration(Math.max(1, Math.round(passed)));
  const minutes = Math.floor(passed / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${figure(Math.floor(hours / 24))} days`;
}

const REASONS: Readonly<Record<Gap, string>> = {
  hidden: "this tab was hidden",
  paused: "paused",
  away: "the server returned no metrics",
  key: "the server needed an API key",
  late: "this browser slept or was busy",
};

/** Descriptions of the gaps in the plots: the last one, and the others on demand. */
function Interruptions({ slots }: { slots: readonly Slot[] }) {
  const told: string[] = [];
  slots.forEach(({ point }, index) => {
    if (point === null || index === 0) return;
    const { gap, restarted, time } = history.points[point]!;
    if (gap) told.unshift(`Not measured from ${clock(history.points[point - 1]!.time)} to ${clock(time)}: ${REASONS[gap]}.`);
    if (restarted) told.unshift(`${clock(time)}: the server had restarted; its counters began at 0.`);
  });
  const [last, ...before] = told;
  if (last === undefined) return null;
  if (before.length === 0) return <p class="interruptions">{last}</p>;
  return (
    <details class="interruptions">
      <summary>
        {last} And {plural(before.length, "interruption")} before.
      </summary>
      <ul>
        {before.map((each) => (
          <li key={each}>{each}</li>
        ))}
      </ul>
    </details>
  );
}
