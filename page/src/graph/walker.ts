/** Asks the server which ways of the graph the answer has taken, while it streams and after. */

import { computed, effect, signal, type ReadonlySignal } from "@preact/signals";

import { apiFetch } from "../server/access";
import { answerNumber, currentAnswerText, schemaId } from "../state";
import { register, registered, type Registered } from "./register";
import { NOTHING_PASSED, passedBy, stepsAfter, type Passed } from "./walk";
import type { Step, Walk } from "./wire";

/** Minimum milliseconds between two requests. */
const BETWEEN = 200;

const walked = signal<{ constraint: Registered; passed: Passed } | null>(null);

/** The path of the answer in the drawn graph; empty if it belongs to another graph. */
export const passed: ReadonlySignal<Passed> = computed(() => (walked.value?.constraint === registered.value && walked.value?.passed) || NOTHING_PASSED);

/** The last walk, which the next request continues. */
let last: { constraint: Registered; answer: number; steps: readonly Step[]; state: string } | null = null;
/** Id of a schema registered again after a 404; only once, or the requests would never end. */
let restored: string | null = null;

let timer = 0;
let lastAsked = -Infinity;
let inFlight = false;
let changedMeanwhile = false;

effect(() => {
  void answerNumber.value;
  if (currentAnswerText.value === "") walked.value = null;
  else if (walkable(registered.value, schemaId.value)) schedule();
});

/** Whether there is a drawn graph, and it is that of the constraint on screen. */
function walkable(drawn: Registered | null, id: string | null): drawn is Registered {
  return drawn !== null && drawn.id === id && drawn.undrawn === null;
}

function schedule(): void {
  if (inFlight) {
    changedMeanwhile = true;
    return;
  }
  clearTimeout(timer);
  timer = setTimeout(() => void ask(), Math.max(0, lastAsked + BETWEEN - performance.now()));
}

async function ask(): Promise<void> {
  const [constraint, text, answer] = [registered.peek(), currentAnswerText.peek(), answerNumber.peek()];
  if (!walkable(constraint, schemaId.peek()) || text === "") return;
  inFlight = true;
  changedMeanwhile = false;
  lastAsked = performance.now();
  const before = last?.constraint === constraint && last.answer === answer ? last : null;
  const walk = await walkOf(constraint, text, before?.state);
  inFlight = false;
  if (walk && answer === answerNumber.peek() && constraint === registered.peek()) {
    const steps = stepsAfter(before?.steps ?? [], walk);
    last = { constraint, answer, steps, state: walk.state };
    walked.value = { constraint, passed: passedBy(walk, steps, constraint.index, [...text].length) };
  }
  if (changedMeanwhile) schedule();
}

async function walkOf({ id, options }: Registered, text: string, state?: string): Promise<Walk | null> {
  const body = JSON.stringify({ text, graph: options, state });
  try {
    const response = await apiFetch(`v1/schemas/${encodeURIComponent(id)}/walk`, { method: "POST", body });
    if (response.ok) {
      const walk: Walk = await response.json();
      restored = null;
      return walk;
    }
    if (response.status === 404 && restored !== id) {
      restored = id;
      void register(); // the server has dropped the schema, or was replaced
    }
  } catch {
    // no connection, or it broke off: the next text is walked again
  }
  return null;
}
