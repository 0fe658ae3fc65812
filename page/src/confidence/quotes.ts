/** Values of the answer that stand in the prompt, and their marks there. */

import { computed, effect, signal } from "@preact/signals";

import { askedTexts, textsOnScreen } from "../request/actions";
import { answerConfidence, answerNumber, answerSpans, promptHighlights, type Span } from "../state";

/** The pointer of the value that is looked at; null: none. */
export const lookedAt = signal<string | null>(null);

/** By the value's pointer. */
export const quotes = computed(() => {
  const found = new Map<string, Span>();
  for (const { pointer, span } of answerConfidence.value ?? []) if (span) found.set(pointer, span);
  for (const { pointer, part, start, end } of answerSpans.value ?? []) found.set(pointer, { part, start, end });
  return found;
});

/** Whether the text that a quote was found in is still the one on screen. */
export function stillThere({ part }: Span): boolean {
  return askedTexts.value.get(part) === textsOnScreen.value.get(part);
}

// What was looked at is gone with its answer.
effect(() => {
  void answerNumber.value;
  lookedAt.value = null;
});
// The quote that is looked at is marked, or else all of them.
effect(() => {
  const all = [...quotes.value].filter(([, span]) => stillThere(span));
  const chosen = all.filter(([pointer]) => pointer === lookedAt.value);
  promptHighlights.value = (chosen.length ? chosen : all).map(([pointer, span]) => ({ ...span, label: pointer || "the answer" }));
});
