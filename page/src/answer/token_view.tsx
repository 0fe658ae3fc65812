/** The tokens of a lane, coloured by origin. Written directly to the DOM: there are thousands of
 * tokens at 60 frames a second, and only changed ones are updated. */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

import { percent, visible } from "../ui/number";
import type { Lane } from "./lane";
import { NAMES } from "./origins";
import type { Token } from "./tokens";

/** The token under the pointer or selected by keyboard, and its box on the screen. */
export const inspected = signal<{ lane: Lane; index: number; box: DOMRect } | null>(null);

export const INSPECTOR = "token-inspector";

export function TokenView({ lane, label, id, describedBy }: { lane: Lane; label: string; id: string; describedBy: string }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => paintInto(place.current!, lane, id), [lane, id]);
  return (
    <div
      ref={place}
      id={id}
      class="tokens"
      role="listbox"
      aria-label={label}
      aria-orientation="horizontal"
      aria-describedby={describedBy}
      tabIndex={0}
      onPointerOver={(event) => inspectTarget(lane, event.target)}
      onPointerLeave={() => (inspected.value = null)}
      onFocus={(event) => focusOn(lane, event.currentTarget)}
      onBlur={() => (inspected.value = null)}
      onScroll={() => (inspected.value = null)}
      onKeyDown={(event) => move(lane, event)}
    />
  );
}

function paintInto(place: HTMLElement, lane: Lane, id: string): () => void {
  return lane.onPaint((from) => {
    const { tokens } = lane;
    const atEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 40;
    while (place.childElementCount > tokens.length) place.lastElementChild!.remove();
    for (let index = from; index < tokens.length; index++) {
      const span = (place.children[index] as HTMLElement | undefined) ?? place.appendChild(document.createElement("span"));
      renderToken(span, tokens[index]!, `${id}-${index}`);
    }
    if (from < tokens.length && atEnd) place.scrollTop = place.scrollHeight;
    if (tokens.length === 0) place.removeAttribute("aria-activedescendant");
  });
}

function renderToken(span: HTMLElement, token: Token, id: string): void {
  // A new node: overwritten text would count as a layout shift when the tail is replaced.
  if (span.textContent !== token.text) span.replaceChildren(token.text);
  span.className = `token ${token.source}`;
  span.id = id;
  span.role = "option";
  span.ariaSelected = "false";
  const chance = token.logprob === null ? "" : `, ${percent(token.logprob)}`;
  span.ariaLabel = `${visible(token.text) || "part of a character"}, ${NAMES[token.source]}${chance}`;
}

function inspectTarget(lane: Lane, target: EventTarget | null): void {
  const span = target instanceof HTMLElement && target.classList.contains("token") ? target : null;
  inspected.value = span && { lane, index: indexOf(span), box: span.getClientRects()[0] ?? span.getBoundingClientRect() };
}

function indexOf(span: HTMLElement): number {
  return Number(span.id.slice(span.id.lastIndexOf("-") + 1));
}

function focusOn(lane: Lane, place: HTMLElement): void {
  const active = place.getAttribute("aria-activedescendant");
  select(lane, place, active ? Number(active.slice(active.lastIndexOf("-") + 1)) : 0);
}

function move(lane: Lane, event: KeyboardEvent): void {
  const place = event.currentTarget as HTMLElement;
  if (event.key === "Escape") {
    inspected.value = null;
    return;
  }
  const at = inspected.value?.lane === lane ? inspected.value.index : 0;
  const last = lane.tokens.length - 1;
  const steps: Record<string, number> = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last };
  const to = steps[event.key];
  if (to === undefined || last < 0) return;
  event.preventDefault();
  select(lane, place, Math.max(0, Math.min(last, to)));
}

function select(lane: Lane, place: HTMLElement, index: number): void {
  const span = place.children[index] as HTMLElement | undefined;
  if (!span) return;
  for (const other of place.querySelectorAll("[aria-selected=true]")) other.ariaSelected = "false";
  span.ariaSelected = "true";
  place.setAttribute("aria-activedescendant", span.id);
  span.scrollIntoView({ block: "nearest" });
  inspected.value = { lane, index, box: span.getClientRects()[0] ?? span.getBoundingClientRect() };
}
