/** A text field of the prompt, in which spans can be marked. */

import type { Signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { promptHighlights, type Span } from "../state";

interface Props {
  id: string;
  label: string;
  text: Signal<string>;
  /** Name of this text in `spans`, such as "messages[0]"; null if it is not sent. */
  part: string | null;
  rows: number;
}

/** Pixels between a mark and the edge after it was scrolled into view. */
const MARGIN = 12;

/** The fields on screen, by their part of the prompt. */
const areas = new Map<string, HTMLTextAreaElement>();

/** Goes to a span of the prompt and selects its text. */
export function goToSpan({ part, start, end }: Span): void {
  const area = areas.get(part);
  if (!area) return;
  area.closest("details")?.setAttribute("open", "");
  // Offsets of the server are characters, those of the browser UTF-16 units.
  const characters = [...area.value];
  const from = characters.slice(0, start).join("").length;
  area.focus();
  area.setSelectionRange(from, from + characters.slice(start, end).join("").length);
}

export function Prompt({ id, label, text, part, rows }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  const marks = useRef<HTMLDivElement>(null);
  const spans = promptHighlights.value.filter((span) => span.part === part);
  useEffect(() => {
    const [marked, written] = [marks.current!, area.current!];
    marked.scrollTop = written.scrollTop;
    // Only a single span is scrolled into view, and only this field scrolls.
    if (spans.length !== 1) return;
    const { offsetTop, offsetHeight } = marked.querySelector("mark") ?? { offsetTop: 0, offsetHeight: 0 };
    if (offsetTop < written.scrollTop) written.scrollTop = offsetTop - MARGIN;
    const under = offsetTop + offsetHeight - written.clientHeight;
    if (under > written.scrollTop) written.scrollTop = under + MARGIN;
    marked.scrollTop = written.scrollTop;
  }, [promptHighlights.value]);
  useEffect(() => {
    if (part === null) return;
    areas.set(part, area.current!);
    return () => void (areas.get(part) === area.current && areas.delete(part));
  }, [part]);
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <div class="prompt">
        <div ref={marks} class="prompt-marks" aria-hidden="true">
          {marked(text.value, spans)}
        </div>
        <textarea
          ref={area}
          id={id}
          rows={rows}
          value={text.value}
          spellcheck={false}
          onInput={(event) => {
            text.value = event.currentTarget.value;
            if (promptHighlights.value.length) promptHighlights.value = [];
          }}
          onScroll={(event) => {
            if (marks.current) marks.current.scrollTop = event.currentTarget.scrollTop;
          }}
        />
      </div>
    </div>
  );
}

/** The text in pieces, with marks at `spans`. Of overlapping spans, only the first is marked. */
function marked(text: string, spans: readonly (Span & { label: string })[]): JSX.Element[] {
  if (spans.length === 0) return [];
  const characters = [...text];
  const pieces: JSX.Element[] = [];
  let at = 0;
  for (const { start, end, label } of [...spans].sort((a, b) => a.start - b.start)) {
    if (start < at || end > characters.length) continue;
    pieces.push(<span key={at}>{characters.slice(at, start).join("")}</span>);
    pieces.push(
      <mark key={`${start}:`} title={label}>
        {characters.slice(start, end).join("")}
      </mark>,
    );
    at = end;
  }
  // A line break at the end would have no height of its own.
  pieces.push(<span key="rest">{characters.slice(at).join("")}{"\u200b"}</span>);
  return pieces;
}
