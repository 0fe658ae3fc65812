/** The history of `/metrics` over 15 minutes, with counters adjusted for restarts. */

import type { Sample } from "./exposition";
import { quantile, type Bucket } from "./quantile";

/** Seconds between two scrapes, and seconds of history that are kept. */
export const INTERVAL = 2;
export const KEPT = 15 * 60;
const MOST_POINTS = (2 * KEPT) / INTERVAL;
const MOST_COLUMNS = 1000;
/** Seconds between two scrapes above which there is a gap, even without a known reason. */
const LATE = 3 * INTERVAL;
/** Seconds before a time that its quantiles cover: a single interval often has no values. */
export const SPAN = 30;

/** Reason for a gap in the measurements. */
export type Gap = "hidden" | "paused" | "away" | "key" | "late";

interface Point {
  /** Seconds since 1970. */
  time: number;
  /** By column. For a counter: its increase since the first scrape, over all restarts. */
  values: Float64Array;
  /** Reason for a gap before this point; null: no gap. */
  gap: Gap | null;
  restarted: boolean;
}

/** A time on the plots: a point, or null for the middle of a gap. */
export interface Slot {
  time: number;
  point: number | null;
}

export class History {
  /** Values of the last scrape, by name and labels. */
  #last = new Map<string, number>();
  #columns = new Map<string, number>();
  /** By column: whether it is a gauge. */
  #gauges: boolean[] = [];
  /** Buckets of each histogram, in ascending order. */
  #buckets = new Map<string, { bound: number; column: number }[]>();
  #points: Point[] = [];

  /** `columnOf` returns the column that a sample is added to; null: the sample is ignored. */
  constructor(readonly columnOf: (sample: Sample) => string | null) {}

  get points(): readonly Point[] {
    return this.#points;
  }

  /** Keys of the columns that begin with `prefix`, in alphabetical order. */
  keys(prefix: string): string[] {
    return [...this.#columns.keys()].filter((key) => key.startsWith(prefix)).sort();
  }

  /** Adds a scrape. `gap`: the reason why scrapes before it are missing; null: none are. */
  add(samples: readonly Sample[], time: number, gap: Gap | null): void {
    const before = this.#points.at(-1);
    if (before && time <= before.time) this.#points = []; // the clock was set back
    const now = new Map(samples.map((sample) => [nameOf(sample), sample.value]));
    const restarted = before !== undefined && now.get(STARTED) !== this.#last.get(STARTED);
    const values = new Float64Array(this.#grow(samples));
    for (const sample of samples) {
      const key = this.columnOf(sample);
      const column = key === null ? undefined : this.#columns.get(key);
      if (column === undefined) continue;
      const rose = before ? rise(this.#last.get(nameOf(sample)) ?? 0, sample.value, restarted) : 0;
      values[column]! += isCounter(sample.name) ? rose : sample.value;
    }
    if (before) this.#carry(before, values);
    this.#last = now;
    const late = before && time - before.time > LATE ? "late" : null;
    this.#points.push({ time, values, restarted, gap: before ? (gap ?? late) : null });
    const kept = this.#points.findIndex((point) => point.time >= time - KEPT);
    this.#points = this.#points.slice(Math.max(kept, this.#points.length - MOST_POINTS));
  }

  /** The value of a gauge, or a counter's increase since the first scrape; null before it exists. */
  value(key: string, point: number): number | null {
    const column = this.#columns.get(key);
    return column === undefined ? null : (this.#points[point]!.values[column] ?? null);
  }

  /** Increase of a counter from one point to another. */
  rise(key: string, from: number, to: number): number {
    return (this.value(key, to) ?? 0) - (this.value(key, from) ?? 0);
  }

  /** Increase of a counter per second since the previous point; null after a gap. */
  rate(key: string, point: number): number | null {
    const [before, here] = [this.#points[point - 1], this.#points[point]!];
    return before && here.gap === null ? this.rise(key, point - 1, point) / (here.time - before.time) : null;
  }

  /** The quantile of a histogram's values between two points; null if there are none. */
  quantile(prefix: string, q: number, from: number, to: number): number | null {
    const [before, after] = [this.#points[from]!.values, this.#points[to]!.values];
    const buckets: Bucket[] = this.#bounds(prefix).map(({ bound, column }) => ({ bound, count: (after[column] ?? 0) - (before[column] ?? 0) }));
    return quantile(q, buckets);
  }

  /** The quantile of the `SPAN` seconds before a point. */
  recentQuantile(prefix: string, q: number, point: number): number | null {
    const since = this.#points[point]!.time - SPAN;
    let from = point;
    while (from > 0 && this.#points[from - 1]!.time >= since) from--;
    return this.quantile(prefix, q, from, point);
  }

  /** The points of the last `seconds`, and the middles of the gaps between them. */
  slots(seconds: number): Slot[] {
    const since = (this.#points.at(-1)?.time ?? 0) - seconds;
    const slots: Slot[] = [];
    this.#points.forEach(({ time, gap }, point) => {
      if (time < since) return;
      if (gap !== null && slots.length > 0) slots.push({ time: (time + slots.at(-1)!.time) / 2, point: null });
      slots.push({ time, point });
    });
    return slots;
  }

  /** Adds columns for new samples, up to the limit. Returns the number of columns. */
  #grow(samples: readonly Sample[]): number {
    for (const sample of samples) {
      const key = this.columnOf(sample);
      if (key === null || this.#columns.has(key) || this.#columns.size >= MOST_COLUMNS) continue;
      this.#columns.set(key, this.#columns.size);
      this.#buckets.clear();
      this.#gauges.push(!isCounter(sample.name));
    }
    return this.#columns.size;
  }

  /** Adds the earlier increase of each counter. One that is no longer reported keeps its value. */
  #carry(before: Point, values: Float64Array): void {
    before.values.forEach((value, column) => {
      if (!this.#gauges[column]) values[column]! += value;
    });
  }

  #bounds(prefix: string): { bound: number; column: number }[] {
    let found = this.#buckets.get(prefix);
    if (!found) {
      found = this.keys(`${prefix}:`).map((key) => ({ column: this.#columns.get(key)!, bound: boundOf(key.slice(prefix.length + 1)) }));
      found.sort((a, b) => a.bound - b.bound);
      this.#buckets.set(prefix, found);
    }
    return found;
  }
}

const STARTED = "process_start_time_seconds";

/** Increase of a counter: one that fell, or whose server restarted, began at 0 again. */
function rise(before: number, now: number, restarted: boolean): number {
  return restarted || now < before ? now : now - before;
}

/** Counters as this server names them: a histogram's buckets are counters, too. */
function isCounter(name: string): boolean {
  return name.endsWith("_total") || name.endsWith("_bucket");
}

function nameOf({ name, labels }: Sample): string {
  return labels.size ? `${name}${JSON.stringify([...labels])}` : name;
}

function boundOf(text: string): number {
  return text === "+Inf" ? Infinity : Number(text);
}
