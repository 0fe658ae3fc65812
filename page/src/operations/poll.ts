/** Polls `/metrics`, less often while that fails. */

import { apiKey, errorOf, requestWithKey } from "../server/access";
import { samplesOf, type Sample } from "./exposition";
import { INTERVAL } from "./history";

/** Maximum seconds between two attempts, and time-out of one attempt. */
const LONGEST = 30;
const PATIENCE = 10;

/** Reason why a scrape failed: a key is needed, or the error in `message`. */
export type Trouble = { kind: "key"; refused: boolean } | { kind: "away"; message: string };

export interface Listener {
  took(samples: Sample[]): void;
  failed(trouble: Trouble): void;
}

/** Polls until `ended` is aborted. Never rejects. */
export async function poll(listener: Listener, ended: AbortSignal): Promise<void> {
  for (let failures = 0; !ended.aborted; ) {
    const started = performance.now();
    const found = await scrape(ended);
    if (ended.aborted) return;
    if (Array.isArray(found)) listener.took(found);
    else listener.failed(found);
    failures = Array.isArray(found) ? 0 : failures + 1;
    const due = Math.min(LONGEST, INTERVAL * 2 ** failures);
    await pause(Math.max(0, due - (performance.now() - started) / 1000), ended);
  }
}

async function scrape(ended: AbortSignal): Promise<Sample[] | Trouble> {
  const abort = new AbortController();
  const giveUp = () => abort.abort();
  ended.addEventListener("abort", giveUp, { once: true });
  const timer = setTimeout(giveUp, PATIENCE * 1000);
  try {
    const response = await requestWithKey("metrics", { signal: abort.signal });
    if (response.status === 401) return { kind: "key", refused: apiKey.peek() !== "" };
    if (!response.ok) return { kind: "away", message: (await errorOf(response)).message };
    return samplesOf(await response.text());
  } catch (error) {
    if (error instanceof SyntaxError) return { kind: "away", message: error.message };
    const late = abort.signal.aborted;
    return { kind: "away", message: late ? `No answer within ${PATIENCE} seconds.` : "No connection to the server." };
  } finally {
    clearTimeout(timer);
    ended.removeEventListener("abort", giveUp);
  }
}

/** Waits, at most until `ended` is aborted. */
function pause(seconds: number, ended: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, seconds * 1000);
    function done() {
      clearTimeout(timer);
      ended.removeEventListener("abort", done);
      resolve();
    }
    ended.addEventListener("abort", done, { once: true });
  });
}
