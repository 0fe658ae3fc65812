/** Values of the answer that are quotes from the prompt, and their highlights there. */

import { computed, effect, signal } from "@preact/signals";

import { askedTexts, textsOnScreen } from "../request/actions";
import { answerConfidence, answerNumber, answerSpans, promptHighlights, type Span } from "../state";

/** Pointer of the value under the mouse or focus; null: none. */
export const lookedAt = signal<string | null>(null);

/** Positions of quotes in the prompt, by the value's pointer. */
export const quotes = computed(() => {
  const found = new Map<string, Span>();
  for (const { pointer, span } of answerConfidence.value ?? []) if (span) found.set(pointer, span);
  for (const { pointer, part, start, end } of answerSpans.value ?? []) found.set(pointer, { part, start, end });
  return found;
});

/** Whether the text that contains the quote is unchanged since the request. */
export function isUnchanged({ part }: Span): boolean {
  return askedTexts.value.get(part) === textsOnScreen.value.get(part);
}

// A new answer clears the selection.
effect(() => {
  void answerNumber.value;
  lookedAt.value = null;
});
// Highlights the selected quote, or all quotes if none is selected.
effect(() => {
  const all = [...quotes.value].filter(([, span]) => isUnchanged(span));
  const chosen = all.filter(([pointer]) => pointer === lookedAt.value);
  promptHighlights.value = (chosen.length ? chosen : all).map(([pointer, span]) => ({ ...span, label: pointer || "the answer" }));
});
