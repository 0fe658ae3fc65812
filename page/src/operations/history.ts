/** What `/metrics` said over the last quarter of an hour, as numbers that can be compared over time. */

import type { Sample } from "./exposition";
import { quantile, type Bucket } from "./quantile";

/** Seconds between two scrapes, and that are kept. */
export const INTERVAL = 2;
export const KEPT = 15 * 60;
const MOST_POINTS = (2 * KEPT) / INTERVAL;
const MOST_COLUMNS = 1000;
/** More seconds than this between two scrapes are a gap, even if nobody knows why. */
const LATE = 3 * INTERVAL;
/** Quantiles at a time are those of the seconds before it: a single interval often has nothing. */
export const SPAN = 30;

/** Why nothing was measured for a while. */
export type Gap = "hidden" | "paused" | "away" | "key" | "late";

interface Point {
  /** Seconds since 1970. */
  time: number;
  /** By column. Of a counter: all that it rose since the page began to look, whatever restarted meanwhile. */
  values: Float64Array;
  /** Why there is nothing between the point before and this one; null where there is. */
  gap: Gap | null;
  restarted: boolean;
}

/** A time on the plots: a point, or null for the middle of a gap. */
export interface Slot {
  time: number;
  point: number | null;
}

export class History {
  /** Of the last scrape, by name and labels. */
  #last = new Map<string, number>();
  #columns = new Map<string, number>();
  /** By column: whether it is a gauge. */
  #gauges: boolean[] = [];
  /** By histogram, upwards. */
  #buckets = new Map<string, { bound: number; column: number }[]>();
  #points: Point[] = [];

  /** `columnOf` says which column a sample is added to; null where it is of no interest. */
  constructor(readonly columnOf: (sample: Sample) => string | null) {}

  get points(): readonly Point[] {
    return this.#points;
  }

  /** Keys of the columns that begin with `prefix`, in alphabetical order. */
  keys(prefix: string): string[] {
    return [...this.#columns.keys()].filter((key) => key.startsWith(prefix)).sort();
  }

  /** `gap`: why there was no scrape before this one that should have been. */
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

  /** The value of a gauge, or how far a counter rose since the page began to look; null before it was there. */
  value(key: string, point: number): number | null {
    const column = this.#columns.get(key);
    return column === undefined ? null : (this.#points[point]!.values[column] ?? null);
  }

  /** How far a counter rose from one point to another. */
  rise(key: string, from: number, to: number): number {
    return (this.value(key, to) ?? 0) - (this.value(key, from) ?? 0);
  }

  /** What a counter rose by in a second, since the point before; null where there was a gap. */
  rate(key: string, point: number): number | null {
    const [before, here] = [this.#points[point - 1], this.#points[point]!];
    return before && here.gap === null ? this.rise(key, point - 1, point) / (here.time - before.time) : null;
  }

  /** The quantile of what a histogram counted from one point to another; null where that is nothing. */
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

  /** Gives every sample of interest a column, as far as there is room, and says how many there are. */
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

  /** Adds what counters rose by before. One that is no longer told stays where it was. */
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

/** How far a counter rose: one that fell, or whose server is another one, began at 0 again. */
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
