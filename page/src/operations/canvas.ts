/** A plot's drawing: uPlot with the page's colours, dashes and gaps. */

import uPlot from "uplot";

import type { Slot } from "./history";
import type { Line, Plot } from "./plots";

export const HEIGHT = 170;

/** The data of a drawing. `slots` and each of `values` have the same length. */
export interface Shown {
  slots: readonly Slot[];
  values: (number | null)[][];
  /** Width of the plot in seconds, and the time at its right edge. */
  seconds: number;
  end: number;
}

/** Seconds between two labels below the plot, by the seconds of the window. */
const STEPS: Readonly<Record<number, number>> = { 60: 15, 300: 60, 900: 180 };

export interface Drawing {
  show(shown: Shown): void;
  /** Marks a time; null: none. */
  mark(time: number | null): void;
  resize(): void;
  restyle(): void;
  destroy(): void;
}

/** Draws into `place`. `onLook` gets the slot under the pointer, or null when it leaves. */
export function drawing(place: HTMLElement, plot: Plot, lines: readonly Line[], first: Shown, onLook: (slot: number | null) => void): Drawing {
  let shown = first;
  const colour = (name: string) => getComputedStyle(place).getPropertyValue(`--${name}`);
  const chart = new uPlot(options(plot, lines, () => shown, colour, onLook), dataOf(shown), place);
  const resize = () => {
    const { clientWidth } = place;
    if (clientWidth && clientWidth !== chart.width) chart.setSize({ width: clientWidth, height: HEIGHT });
  };
  resize();
  return {
    resize,
    show(next) {
      shown = next;
      chart.setData(dataOf(next));
    },
    mark(time) {
      const left = time === null ? -10 : chart.valToPos(time, "x");
      chart.setCursor({ left, top: time === null ? -10 : 0 }, false);
    },
    restyle: () => chart.redraw(false),
    destroy: () => chart.destroy(),
  };
}

function dataOf({ slots, values }: Shown): uPlot.AlignedData {
  return [slots.map(({ time }) => time), ...values];
}

function options(plot: Plot, lines: readonly Line[], shown: () => Shown, colour: (name: string) => string, onLook: (slot: number | null) => void): uPlot.Options {
  const axis = { stroke: () => colour("quiet"), font: "11px system-ui, sans-serif", ticks: { show: false } };
  return {
    width: 300,
    height: HEIGHT,
    padding: [8, 16, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: {
      x: { time: false, range: () => [shown().end - shown().seconds, shown().end] },
      y: { range: (_, __, most) => (plot.top ? [0, plot.top] : uPlot.rangeNum(0, most > 0 ? most : 1, { min: { pad: 0, soft: 0, mode: 1 }, max: { pad: 0.1, soft: 0, mode: 1 } }) as [number, number]) },
    },
    axes: [
      {
        ...axis,
        size: 30,
        gap: 8,
        grid: { show: false },
        splits: () => timesOf(shown()),
        values: (_, times) => times.map((time) => agoOf(shown().end - time)),
      },
      {
        ...axis,
        size: 62,
        gap: 6,
        ...(plot.steps && { incrs: [...plot.steps] }),
        grid: { stroke: () => colour("line"), width: 1 },
        values: (_, values) => values.map((value) => plot.unit(value)),
      },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: () => colour(line.colour),
        width: 1.75,
        dash: [...line.dash],
        points: { size: 4, filter: lonely },
      })),
    ],
    hooks: {
      drawAxes: [(chart) => hatchGaps(chart, shown().slots, colour("line-strong"))],
      setCursor: [(chart) => chart.cursor.event && onLook(chart.cursor.idx ?? null)],
    },
  };
}

/** Times of the labels, counted from the window's end, so that labels stay while lines move. */
function timesOf({ end, seconds }: Shown): number[] {
  const step = STEPS[seconds] ?? seconds / 5;
  const times: number[] = [];
  for (let ago = seconds; ago >= 0; ago -= step) times.push(end - ago);
  return times;
}

function agoOf(ago: number): string {
  const seconds = Math.round(ago);
  if (seconds === 0) return "now";
  return seconds % 60 ? `−${seconds} s` : `−${seconds / 60} min`;
}

/** Indices of values between two gaps, which are on no line and need a point. */
function lonely(chart: uPlot, series: number): number[] {
  const values = chart.data[series]!;
  const found: number[] = [];
  values.forEach((value, index) => {
    if (value !== null && (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null) found.push(index);
  });
  return found;
}

/** Hatches the times in which nothing was measured. */
function hatchGaps(chart: uPlot, slots: readonly Slot[], ink: string): void {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.strokeStyle = ink;
  ctx.globalAlpha = 0.45;
  ctx.lineWidth = devicePixelRatio;
  slots.forEach(({ point }, index) => {
    if (point !== null) return;
    const left = Math.max(bbox.left, chart.valToPos(slots[index - 1]!.time, "x", true));
    const right = Math.min(bbox.left + bbox.width, chart.valToPos(slots[index + 1]!.time, "x", true));
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, bbox.top, right - left, bbox.height);
    ctx.clip();
    ctx.beginPath();
    for (let x = left - bbox.height; x < right; x += 8 * devicePixelRatio) {
      ctx.moveTo(x, bbox.top + bbox.height);
      ctx.lineTo(x + bbox.height, bbox.top);
    }
    ctx.stroke();
    ctx.restore();
  });
  ctx.restore();
}
