/** The tokens of an answer and their origins. */

export type Source = "sampled" | "leapt" | "drafted" | "held";
/** In the order of the legend: tokens with forward passes first. */
export const SOURCES: readonly Source[] = ["sampled", "drafted", "held", "leapt"];

export interface Alternative {
  token: string;
  logprob: number;
}

/** A token in a stream's `origins`. */
export interface WireToken {
  token: string;
  bytes: number[] | null;
  source: Source;
  logprob?: number | null;
  top_logprobs?: Alternative[] | null;
}

export interface Token {
  /** The complete characters that it adds to the text; "" if it ends inside its first one. */
  text: string;
  source: Source;
  /** Natural logarithm of the probability; null if the token was not drawn. */
  logprob: number | null;
  alternatives: readonly Alternative[];
  /** Bytes at its end that begin a character, which the next token completes. */
  open: readonly number[];
}

const NOTHING: readonly number[] = [];
const decoder = new TextDecoder();

/**
 * Replaces all tokens from `index` on by `told`. When a leap is tokenized again, its last tokens
 * change, so each event has the index of its first token.
 */
export function replaceTail(tokens: Token[], index: number, told: readonly WireToken[]): void {
  tokens.length = Math.min(index, tokens.length);
  for (const wire of told) {
    const before = tokens.at(-1)?.open ?? NOTHING;
    const [text, open] = wire.bytes === null ? [wire.token, NOTHING] : textOf(before, wire.bytes);
    tokens.push({
      text,
      open,
      source: wire.source,
      logprob: wire.source === "leapt" ? null : (wire.logprob ?? null), // the API has 0 for a leap: certain, but not drawn
      alternatives: wire.top_logprobs ?? [],
    });
  }
}

/** The complete characters of `before` and `bytes`, and the bytes of an incomplete last one. */
function textOf(before: readonly number[], bytes: readonly number[]): [string, readonly number[]] {
  const all = before.length ? [...before, ...bytes] : bytes;
  const whole = all.length - openBytes(all);
  return [decoder.decode(Uint8Array.from(all.slice(0, whole))), whole === all.length ? NOTHING : all.slice(whole)];
}

/** Number of bytes of an incomplete UTF-8 character at the end (RFC 3629, section 3). */
function openBytes(bytes: readonly number[]): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!;
    if (byte < 0x80) return 0;
    if (byte >= 0xc0) {
      const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return length > back ? back : 0;
    }
  }
  return 0;
}

export type Counts = Readonly<Record<Source, number>>;
export const NO_COUNTS: Counts = { sampled: 0, leapt: 0, drafted: 0, held: 0 };

export function countsOf(tokens: readonly Token[]): Counts {
  const counts = { ...NO_COUNTS };
  for (const token of tokens) counts[token.source]++;
  return counts;
}
