/** Numbers as the page writes them. */

export function milliseconds(value: number | null): string {
  if (value === null) return "–";
  if (value < 1000) return `${Math.round(value)} ms`;
  return `${(value / 1000).toFixed(value < 10_000 ? 2 : 1)} s`;
}

/** A probability from its logarithm: 97 %, 0.4 %, below 0.1 %. */
export function percent(logprob: number): string {
  const share = 100 * Math.exp(logprob);
  if (share >= 99.95) return share >= 99.995 ? "100 %" : `${share.toFixed(2)} %`;
  if (share >= 10) return `${share.toFixed(0)} %`;
  return share >= 0.1 ? `${share.toFixed(1)} %` : "< 0.1 %";
}

/** A token as it can be seen: blanks at its ends and signs without a shape are written out. */
export function visible(token: string): string {
  return token.replace(/^ | $/g, "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}
