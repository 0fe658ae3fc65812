/** Numbers as the page writes them. */

export function milliseconds(value: number | null): string {
  if (value === null) return "–";
  if (value < 1000) return `${Math.round(value)} ms`;
  return `${(value / 1000).toFixed(value < 10_000 ? 2 : 1)} s`;
}

/** A probability from its logarithm. */
export function percent(logprob: number): string {
  return probability(Math.exp(logprob));
}

/** 97 %, 0.4 %, < 0.1 %, > 99.99 %: no other value is rounded to 0 or 100 %. */
export function probability(value: number): string {
  const share = 100 * value;
  if (share >= 99.995) return share === 100 ? "100 %" : "> 99.99 %";
  if (share >= 99.5) return `${share.toFixed(2)} %`;
  if (share >= 10) return `${share.toFixed(0)} %`;
  return share >= 0.1 ? `${share.toFixed(1)} %` : "< 0.1 %";
}

/** A token with symbols for a space at either end, newlines and tabs. */
export function visible(token: string): string {
  return token.replace(/^ | $/g, "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** A count or a rate in three digits, whole above that: 0.25, 12.3, 12,300. */
export function figure(value: number): string {
  if (Math.abs(value) >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(Math.abs(value) < 0.01 ? 1 : 3)));
}

/** Minimum seconds, factor and name of each unit. */
const TIMES = [
  [1, 1, "s"],
  [1e-3, 1e3, "ms"],
  [0, 1e6, "µs"],
] as const;

/** A time in seconds, in the unit that fits it: 35 µs, 1.2 ms, 3.4 s. */
export function duration(seconds: number): string {
  if (seconds === 0) return "0 s";
  const [, factor, unit] = TIMES.find(([least]) => seconds >= least)!;
  const value = seconds * factor;
  return `${value >= 100 ? Math.round(value) : Number(value.toPrecision(2))} ${unit}`;
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(value: number): string {
  const power = value < 1 ? 0 : Math.min(BYTE_UNITS.length - 1, Math.floor(Math.log2(value) / 10));
  return `${figure(value / 1024 ** power)} ${BYTE_UNITS[power]}`;
}

export function wholePercent(share: number): string {
  return `${Math.round(100 * share)} %`;
}
