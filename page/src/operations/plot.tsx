/** A plot: a drawing, and a table of its values that screen readers can read, too. */

import { useEffect, useMemo, useRef } from "preact/hooks";

import { theme } from "../state";
import { drawing, HEIGHT, type Drawing, type Shown } from "./canvas";
import type { Slot } from "./history";
import type { Line, Plot } from "./plots";
import { history, lookedAt, seconds } from "./store";

interface Props {
  plot: Plot;
  slots: readonly Slot[];
  end: number;
  /** The slot whose values are in the table. */
  chosen: Slot | undefined;
  /** Heading of the column of these values, such as "now". */
  when: string;
}

export function PlotView({ plot, slots, end, chosen, when }: Props) {
  const lines = useMemo(() => plot.lines(history), [slots]);
  const shown = useMemo(() => {
    const values = lines.map((line) => slots.map(({ point }) => (point === null ? null : line.at(history, point))));
    return { slots, values, seconds: seconds.value, end };
  }, [slots]);
  return (
    <section class="card plot" aria-labelledby={`plot-${plot.id}`}>
      <h3 id={`plot-${plot.id}`}>
        {plot.title} <small>{plot.what}</small>
      </h3>
      <Canvas plot={plot} lines={lines} shown={shown} />
      <Figures plot={plot} lines={lines} slots={slots} chosen={chosen} when={when} />
    </section>
  );
}

function Canvas({ plot, lines, shown }: { plot: Plot; lines: readonly Line[]; shown: Shown }) {
  const place = useRef<HTMLDivElement>(null);
  const drawn = useRef<Drawing | null>(null);
  const latest = useRef(shown);
  latest.current = shown;
  const names = lines.map(({ label }) => label).join();
  useEffect(() => {
    const look = (slot: number | null) => (lookedAt.value = slot === null ? null : (latest.current.slots[slot]?.time ?? null));
    const chart = (drawn.current = drawing(place.current!, plot, lines, latest.current, look));
    const size = new ResizeObserver(chart.resize);
    size.observe(place.current!);
    return () => {
      size.disconnect();
      chart.destroy();
      drawn.current = null;
    };
  }, [names]);
  useEffect(() => drawn.current?.show(shown), [shown]);
  useEffect(() => drawn.current?.mark(lookedAt.value), [lookedAt.value, shown]);
  useEffect(() => drawn.current?.restyle(), [theme.value]);
  return <div ref={place} class="canvas" style={{ height: `${HEIGHT}px` }} aria-hidden="true" />;
}

function Figures({ plot, lines, slots, chosen, when }: { plot: Plot; lines: readonly Line[]; slots: readonly Slot[]; chosen: Slot | undefined; when: string }) {
  const points = slots.flatMap(({ point }) => (point === null ? [] : [point]));
  const [from, to] = [points[0], points.at(-1)];
  const said = (value: number | null) => (value === null ? "–" : plot.unit(value));
  return (
    <table class="figures">
      <caption class="visually-hidden">
        {plot.title}: {plot.what}. The last column is of all the time shown.
      </caption>
      <thead>
        <tr>
          <th scope="col">
            <span class="visually-hidden">line</span>
          </th>
          <th scope="col">{when}</th>
          <th scope="col">{plot.whole}</th>
        </tr>
      </thead>
      <tbody>
        {lines.map((line) => (
          <tr key={line.label}>
            <th scope="row">
              <Sample line={line} />
              {line.label}
            </th>
            <td>{said(chosen === undefined || chosen.point === null ? null : line.at(history, chosen.point))}</td>
            <td>{said(from === undefined || to === undefined ? null : line.over(history, from, to))}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A sample of the line, as in a legend. */
function Sample({ line }: { line: Line }) {
  return (
    <svg width="30" height="8" aria-hidden="true">
      <line x1="0" x2="30" y1="4" y2="4" stroke-width="2.5" stroke-dasharray={line.dash.join(" ")} style={{ stroke: `var(--${line.colour})` }} />
    </svg>
  );
}
