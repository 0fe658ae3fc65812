/** The plots and their metrics, which docs/operations.md explains. */

import { bytes, duration, figure, wholePercent } from "../ui/number";
import type { Sample } from "./exposition";
import type { History } from "./history";

/** Appearance of a line: a colour of styles/colours.css, and a dash pattern. */
export interface Look {
  colour: string;
  dash: readonly number[];
}

export interface Line extends Look {
  label: string;
  /** The value at a point; null if nothing was measured. */
  at: (history: History, point: number) => number | null;
  /** The total, peak or overall value of a range of points, as `Plot.whole` says. */
  over: (history: History, from: number, to: number) => number | null;
}

export interface Plot {
  id: string;
  title: string;
  /** The unit or meaning of the numbers, in a few words. */
  what: string;
  /** Heading of the column for all of the time shown. */
  whole: "total" | "peak" | "overall";
  unit: (value: number) => string;
  /** Upper end of the scale, if known. */
  top?: number;
  /** Distances that the scale's labels may have; round decimal ones if absent. */
  steps?: readonly number[];
  lines: (history: History) => Line[];
}

const WHOLE = [1, 2, 5].flatMap((digit) => [0, 1, 2, 3, 4, 5].map((power) => digit * 10 ** power)).sort((a, b) => a - b);
const BINARY = Array.from({ length: 48 }, (_, power) => 2 ** power);

const DASHES: readonly (readonly number[])[] = [[], [7, 3], [2, 3], [9, 3, 2, 3], [14, 4], [4, 4, 1, 4]];
const COLOURS = ["accent", "sampled", "drafted", "held", "code-name", "bad"];

/** Paths whose requests are not load of the API: probes, and this page itself. */
const NOT_COUNTED = /^\/(?:health|ready|metrics|docs|openapi\.json|page\/.*)?$/;

/** The column of `History` that a sample is added to, by metric. */
const COLUMNS: Readonly<Record<string, (label: (name: string) => string) => string | null>> = {
  leapjson_requests_total: (label) => (NOT_COUNTED.test(label("endpoint")) ? null : `status:${label("status")}`),
  leapjson_tokens_total: (label) => `tokens:${label("source")}`,
  leapjson_tokens_skipped_total: () => "skipped",
  leapjson_forward_passes_total: () => "passes",
  leapjson_forward_passes_saved_total: () => "saved",
  leapjson_num_requests_running: () => "running",
  leapjson_num_requests_waiting: () => "waiting",
  leapjson_num_requests_compiling: () => "compiling",
  leapjson_kv_cache_usage_ratio: () => "kv",
  leapjson_state_slots_usage_ratio: () => "states",
  leapjson_step_seconds_bucket: (label) => `step-${label("phase")}:${label("le")}`,
  leapjson_time_to_first_token_seconds_bucket: (label) => `first:${label("le")}`,
  leapjson_inter_token_latency_seconds_bucket: (label) => `gap:${label("le")}`,
  leapjson_schema_cache_hits_total: () => "hits",
  leapjson_schema_cache_misses_total: () => "misses",
  leapjson_schema_cache_bytes: () => "schemas",
  leapjson_verbatim_cache_bytes: () => "texts",
};

export function columnOf({ name, labels }: Sample): string | null {
  return COLUMNS[name]?.((label) => labels.get(label) ?? "") ?? null;
}

/** The line of a counter's rate per second. `less` is subtracted: a part with its own line. */
function rate(label: string, key: string, look: Look, less?: string): Line {
  const without = (of: (key: string) => number | null) => {
    const value = of(key);
    return value === null || less === undefined ? value : Math.max(0, value - (of(less) ?? 0));
  };
  return {
    label,
    ...look,
    at: (history, point) => without((each) => history.rate(each, point)),
    over: (history, from, to) => without((each) => history.rise(each, from, to)),
  };
}

function gauge(label: string, key: string, look: Look): Line {
  return {
    label,
    ...look,
    at: (history, point) => history.value(key, point),
    over: (history, from, to) => {
      let most: number | null = null;
      for (let point = from; point <= to; point++) most = Math.max(most ?? 0, history.value(key, point) ?? 0);
      return most;
    },
  };
}

function quantileLine(label: string, prefix: string, q: number, look: Look): Line {
  return {
    label,
    ...look,
    at: (history, point) => history.recentQuantile(prefix, q, point),
    over: (history, from, to) => history.quantile(prefix, q, from, to),
  };
}

function look(index: number, colour?: string): Look {
  return { colour: colour ?? COLOURS[index % COLOURS.length]!, dash: DASHES[index % DASHES.length]! };
}

function statusColour(status: string): string {
  if (status.startsWith("2")) return "good";
  if (status.startsWith("5")) return "bad";
  return status === "429" || status === "499" ? "held" : "sampled";
}

function statuses(history: History): Line[] {
  const keys = history.keys("status:");
  return (keys.length ? keys : ["status:200"]).map((key, index) => {
    const status = key.slice("status:".length);
    return rate(status, key, look(index, statusColour(status)));
  });
}

const QUANTILES = [0.5, 0.9, 0.99];

function quantiles(prefix: string): Line[] {
  return QUANTILES.map((q, index) => quantileLine(`p${100 * q}`, prefix, q, look(index)));
}

function phases(q: number): Line[] {
  return ["plan", "launch", "mask", "sample", "commit"].map((phase, index) => quantileLine(phase, `step-${phase}`, q, look(index)));
}

export const PLOTS: readonly Plot[] = [
  {
    id: "answers",
    title: "Answer tokens by origin",
    what: "tokens a second",
    whole: "total",
    unit: figure,
    lines: () => [
      rate("sampled", "tokens:sampled", look(0, "sampled"), "tokens:drafted"),
      rate("drafted, held back", "tokens:drafted", look(1, "drafted")),
      rate("leapt", "tokens:leapt", look(2, "leapt")),
    ],
  },
  {
    id: "passes",
    title: "Forward passes and what was saved",
    what: "a second",
    whole: "total",
    unit: figure,
    lines: () => [
      rate("passes", "passes", look(0, "text")),
      rate("tokens skipped", "skipped", look(2, "leapt")),
      rate("samples saved by drafts", "saved", look(1, "drafted")),
    ],
  },
  {
    id: "requests",
    title: "Requests by status",
    what: "finished per second, without probes and this page",
    whole: "total",
    unit: figure,
    lines: statuses,
  },
  {
    id: "queue",
    title: "Answers under way",
    what: "at each scrape",
    whole: "peak",
    unit: figure,
    steps: WHOLE,
    lines: () => [gauge("running", "running", look(0)), gauge("waiting", "waiting", look(1)), gauge("compiling", "compiling", look(2))],
  },
  {
    id: "first",
    title: "Time to first token",
    what: "quantiles of the last 30 seconds",
    whole: "overall",
    unit: duration,
    lines: () => quantiles("first"),
  },
  {
    id: "gap",
    title: "Inter-token latency",
    what: "between chunks, quantiles of the last 30 seconds",
    whole: "overall",
    unit: duration,
    lines: () => quantiles("gap"),
  },
  {
    id: "step-median",
    title: "Step time by phase, p50",
    what: "median of the last 30 seconds",
    whole: "overall",
    unit: duration,
    lines: () => phases(0.5),
  },
  {
    id: "step-tail",
    title: "Step time by phase, p99",
    what: "99th percentile of the last 30 seconds",
    whole: "overall",
    unit: duration,
    lines: () => phases(0.99),
  },
  {
    id: "prompts",
    title: "Prompt tokens",
    what: "tokens a second",
    whole: "total",
    unit: figure,
    lines: () => [rate("computed", "tokens:prompt", look(0)), rate("from the prefix cache", "tokens:cached", look(1, "leapt"))],
  },
  {
    id: "memory",
    title: "KV cache",
    what: "share in use",
    whole: "peak",
    unit: wholePercent,
    top: 1,
    lines: (history) => [gauge("blocks", "kv", look(0)), gauge("slots for states", "states", look(1))].filter(
      // Only models with recurrent layers have states.
      ({ over }, index) => index === 0 || over(history, 0, history.points.length - 1),
    ),
  },
  {
    id: "lookups",
    title: "Schema cache",
    what: "lookups a second",
    whole: "total",
    unit: figure,
    lines: () => [rate("hits", "hits", look(0, "leapt")), rate("compiled", "misses", look(1, "sampled"))],
  },
  {
    id: "bytes",
    title: "Memory of schemas",
    what: "compiled schemas and x-verbatim texts",
    whole: "peak",
    unit: bytes,
    steps: BINARY,
    lines: () => [gauge("schemas", "schemas", look(0)), gauge("texts", "texts", look(1))],
  },
];
