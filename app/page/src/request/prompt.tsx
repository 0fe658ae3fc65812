/** A text of the prompt, in which places can be marked. */

import type { Signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { promptHighlights, type Span } from "../state";

interface Props {
  id: string;
  label: string;
  text: Signal<string>;
  /** What the API calls this text in `spans`: "messages[0]". */
  part: string;
  rows: number;
}

export function Prompt({ id, label, text, part, rows }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  const marks = useRef<HTMLDivElement>(null);
  const spans = promptHighlights.value.filter((span) => span.part === part);
  useEffect(() => {
    if (spans.length === 0) return;
    marks.current?.querySelector("mark")?.scrollIntoView({ block: "nearest" });
    if (area.current && marks.current) area.current.scrollTop = marks.current.scrollTop;
  }, [promptHighlights.value]);
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

/** The text in pieces, those of `spans` in marks. Where two overlap the first one has the place. */
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
  pieces.push(<span key="rest">{characters.slice(at).join("")}</span>);
  return pieces;
}
