/** Run, race and stop. */

import { batch, computed, effect, signal } from "@preact/signals";

import { Lane } from "../answer/lane";
import {
  answerConfidence,
  answerNumber,
  answerSpans,
  apiKey,
  constraintKind,
  currentAnswerText,
  model,
  promptHighlights,
  running,
  schema,
  schemaProblems,
  schemaSpec,
  schemaText,
  seed,
  type ConfidenceEntry,
  type Span,
} from "../state";
import { messages, streamBody, textOf } from "./body";

/** The answer, and in a race the second one: the same request with leaps and drafts off. */
export const mainLane = new Lane();
export const plainLane = new Lane();
export const racing = signal(false);

/** Texts of the prompt that was sent, by the name of their part in `spans`. */
export const askedTexts = signal<ReadonlyMap<string, string>>(new Map());
/** Texts of the prompt on screen, by part. */
export const textsOnScreen = computed(() => new Map(messages().map((message, index) => [`messages[${index}]`, textOf(message)])));

/** Reason why the request cannot be sent; null if it can. */
export const notSendable = computed(() => {
  if (constraintKind.value === "schema" && schema.value === null) return "The schema is not valid JSON yet.";
  if (constraintKind.value !== "none" && schemaSpec.value === null) return "The constraint is empty.";
  return null;
});

const going = (lane: Lane) => lane.phase.value === "waiting" || lane.phase.value === "streaming";
effect(() => {
  running.value = going(mainLane) || going(plainLane);
});
effect(() => {
  currentAnswerText.value = mainLane.text.value;
});
effect(() => {
  answerConfidence.value = mainLane.confidence.value as ConfidenceEntry[] | null;
  answerSpans.value = mainLane.spans.value as (Span & { pointer: string })[] | null;
});
effect(() => {
  void schemaText.value;
  const { run, explain } = schemaProblems.peek();
  // If there are no problems, the editor does not look up their places at each key.
  if (run.length + explain.length > 0) schemaProblems.value = { run: [], explain: [] };
});
effect(() => {
  const error = mainLane.error.value;
  const place = error?.pointer;
  if (constraintKind.peek() !== "schema" || typeof place !== "string") return;
  schemaProblems.value = {
    ...schemaProblems.peek(),
    run: [{ pointer: place, message: error!.message, severity: "error" }],
  };
});

export function run(): void {
  if (notSendable.value || running.value) return;
  begin(false);
  plainLane.clear();
  void mainLane.run(streamBody());
}

/** Runs both requests with the same seed, for the same answer; they run in the same batch. */
export function race(): void {
  if (notSendable.value || running.value) return;
  begin(true);
  const shared = { seed: seed.value ?? crypto.getRandomValues(new Uint32Array(1))[0]! >>> 1 };
  void mainLane.run(streamBody(shared));
  void plainLane.run(streamBody({ ...shared, leap: false, draft: false }));
}

export function stop(): void {
  mainLane.stop();
  plainLane.stop();
}

function begin(race: boolean): void {
  again = race;
  batch(() => {
    racing.value = race;
    answerNumber.value++;
    askedTexts.value = textsOnScreen.value;
    promptHighlights.value = [];
    schemaProblems.value = { ...schemaProblems.value, run: [] };
  });
}

let again = false;

// A request that failed without a valid key is sent again once a key was entered, and the model's name
// is known.
effect(() => {
  if (!apiKey.value || !model.value) return;
  if (mainLane.error.peek()?.code === "invalid_api_key") (again ? race : run)();
});
