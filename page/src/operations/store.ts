/** What the operations tab knows. It outlives the tab's being shown: whoever comes back finds what was measured. */

import { effect, signal } from "@preact/signals";

import { apiKey } from "../state";
import type { Sample } from "./exposition";
import { History, type Gap } from "./history";
import { columnOf } from "./plots";
import { poll, type Trouble } from "./poll";

export const WINDOWS = [60, 300, 900] as const;
/** Seconds that the plots are wide. */
export const seconds = signal<(typeof WINDOWS)[number]>(300);
export const paused = signal(false);
export const trouble = signal<Trouble | null>(null);
/** The last scrape, and when it came, in seconds since 1970; null before the first. */
export const latest = signal<{ samples: readonly Sample[]; time: number } | null>(null);
/** The time that all plots mark and all tables tell; null is now. */
export const lookedAt = signal<number | null>(null);

export const history = new History(columnOf);

const inSight = signal(document.visibilityState === "visible");
document.addEventListener("visibilitychange", () => (inSight.value = document.visibilityState === "visible"));

/** Why the next scrape does not follow the last one as it should. */
let gap: Gap | null = null;
const attempt = signal(0);

/** Asks at once, where the next attempt is some time away. */
export function askNow(): void {
  attempt.value++;
}

/** Measures while the browser's tab is in sight, until the function that comes back is called. */
export function measure(): () => void {
  const end = effect(() => {
    void apiKey.value;
    void attempt.value;
    if (paused.value) gap ??= "paused";
    else if (!inSight.value) gap ??= "hidden";
    else return follow();
  });
  return () => {
    end();
    gap ??= "hidden";
  };
}

/** Asks until the function that comes back is called. */
function follow(): () => void {
  const ended = new AbortController();
  const listener = {
    took(samples: Sample[]) {
      const time = Date.now() / 1000;
      history.add(samples, time, gap);
      gap = trouble.value = null;
      latest.value = { samples, time };
    },
    failed(what: Trouble) {
      gap ??= what.kind;
      trouble.value = what;
    },
  };
  // In a task of its own: what `poll` reads is not what this effect depends on.
  queueMicrotask(() => void poll(listener, ended.signal));
  return () => ended.abort();
}
