/** The state of the operations tab. It is kept while another tab is shown. */

import { effect, signal } from "@preact/signals";

import { apiKey } from "../state";
import type { Sample } from "./exposition";
import { History, type Gap } from "./history";
import { columnOf } from "./plots";
import { poll, type Trouble } from "./poll";

export const WINDOWS = [60, 300, 900] as const;
/** Width of the plots in seconds. */
export const seconds = signal<(typeof WINDOWS)[number]>(300);
export const paused = signal(false);
export const trouble = signal<Trouble | null>(null);
/** The last scrape and its time, in seconds since 1970; null before the first. */
export const latest = signal<{ samples: readonly Sample[]; time: number } | null>(null);
/** The time that all plots mark and all tables show; null: now. */
export const lookedAt = signal<number | null>(null);

export const history = new History(columnOf);

const inSight = signal(document.visibilityState === "visible");
document.addEventListener("visibilitychange", () => (inSight.value = document.visibilityState === "visible"));

/** Reason why scrapes are missing since the last one; null: none are. */
let gap: Gap | null = null;
const attempt = signal(0);

/** Scrapes at once instead of waiting for the next attempt. */
export function askNow(): void {
  attempt.value++;
}

/** Measures while the browser's tab is visible, until the returned function is called. */
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

/** Polls until the returned function is called. */
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
  // In a microtask: signals read by `poll` must not become dependencies of this effect.
  queueMicrotask(() => void poll(listener, ended.signal));
  return () => ended.abort();
}
