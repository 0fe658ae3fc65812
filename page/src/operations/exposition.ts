/** Reads Prometheus' text format, version 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format). */

export interface Sample {
  name: string;
  labels: ReadonlyMap<string, string>;
  value: number;
}

const SAMPLE = /^([a-zA-Z_:][\w:]*)[ \t]*(?:\{(.*)\}[ \t]*|[ \t])[ \t]*(\S+)(?:[ \t]+-?\d+)?[ \t]*$/;
const LABEL = /[ \t]*([a-zA-Z_]\w*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)/y;
const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;

/** The samples in their order, without help, types and times. Throws a `SyntaxError` that names the line. */
export function samplesOf(text: string): Sample[] {
  const samples: Sample[] = [];
  text.split("\n").forEach((line, index) => {
    if (line.trim() === "" || line.trimStart().startsWith("#")) return;
    const sample = sampleOf(line.trim());
    if (!sample) throw new SyntaxError(`Line ${index + 1} is not in Prometheus' text format.`);
    samples.push(sample);
  });
  return samples;
}

function sampleOf(line: string): Sample | null {
  const found = SAMPLE.exec(line);
  if (!found) return null;
  const labels = labelsOf(found[2] ?? "");
  const value = numberOf(found[3]!);
  return labels && value !== null ? { name: found[1]!, labels, value } : null;
}

function labelsOf(text: string): Map<string, string> | null {
  const labels = new Map<string, string>();
  LABEL.lastIndex = 0;
  while (LABEL.lastIndex < text.trimEnd().length) {
    const found = LABEL.exec(text);
    if (!found || labels.has(found[1]!)) return null;
    labels.set(found[1]!, unescaped(found[2]!));
  }
  return labels;
}

function unescaped(text: string): string {
  return text.replace(/\\([\\n"])/g, (_, sign: string) => (sign === "n" ? "\n" : sign));
}

/** A number as Go writes it; null if it is not one. */
function numberOf(text: string): number | null {
  if (NUMBER.test(text)) return Number(text);
  if (/^[+-]?nan$/i.test(text)) return NaN;
  if (/^[+-]?inf(?:inity)?$/i.test(text)) return text.startsWith("-") ? -Infinity : Infinity;
  return null;
}
