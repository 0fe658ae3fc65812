/** The tokens of an answer, with where each of them came from. */

export type Source = "sampled" | "leapt" | "drafted" | "held";
/** In the order of legends: what costs first. */
export const SOURCES: readonly Source[] = ["sampled", "drafted", "held", "leapt"];

export interface Alternative {
  token: string;
  logprob: number;
}

/** A token as a stream's `origins` have it. */
export interface WireToken {
  token: string;
  bytes: number[] | null;
  source: Source;
  logprob?: number | null;
  top_logprobs?: Alternative[] | null;
}

export interface Token {
  /** What it adds to the text: "" for one that ends inside a character. */
  text: string;
  source: Source;
  /** Natural logarithm; null where nothing was drawn. */
  logprob: number | null;
  alternatives: readonly Alternative[];
  /** Bytes at its end that begin a character which the next token ends. */
  open: readonly number[];
}

const NOTHING: readonly number[] = [];
const decoder = new TextDecoder();

/**
 * Puts `told` in place of all tokens from `index` on. A leap that is split again changes the last tokens
 * that were known, which is why a stream says where its tokens begin.
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

/** The whole characters of `before` and `bytes`, and the bytes of the one that goes on behind them. */
function textOf(before: readonly number[], bytes: readonly number[]): [string, readonly number[]] {
  const all = before.length ? [...before, ...bytes] : bytes;
  const whole = all.length - openBytes(all);
  return [decoder.decode(Uint8Array.from(all.slice(0, whole))), whole === all.length ? NOTHING : all.slice(whole)];
}

/** How many bytes at the end begin a character of UTF-8 that is not whole (RFC 3629, section 3). */
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
