/** One answer in a stream: its tokens, its cost, and its end. */

import { signal } from "@preact/signals";

import { apiFetch, askForKey, errorOf, type ServerError } from "../server/access";
import { eventsOf, StreamBroken } from "../server/events";
import { countsOf, NO_COUNTS, replaceTail, type Counts, type Token, type WireToken } from "./tokens";

export type Phase = "idle" | "waiting" | "streaming" | "done" | "stopped" | "failed";

/** Figures of an answer; times in milliseconds since the request was sent. */
export interface Figures {
  counts: Counts;
  tokens: number;
  passes: number;
  firstToken: number | null;
  elapsed: number;
  finishReason: string | null;
}

const NO_FIGURES: Figures = { counts: NO_COUNTS, tokens: 0, passes: 0, firstToken: null, elapsed: 0, finishReason: null };

/** The server's `usage`; the last one has the totals. */
export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  completion_tokens_details?: { leapt_tokens?: number; drafted_tokens?: number; forward_passes?: number };
}

interface Chunk {
  error?: ServerError;
  choices?: {
    delta?: { content?: string | null };
    finish_reason?: string | null;
    origins?: { index: number; tokens: WireToken[] } | null;
    confidence?: unknown[];
    spans?: unknown[];
  }[];
  usage?: Usage | null;
}

/** Number of tokens known after a number of forward passes. */
export interface PassMark {
  passes: number;
  tokens: number;
}

/** Called at most once a frame with the first token that changed since the last call. */
export type Painter = (changedFrom: number) => void;

export class Lane {
  readonly phase = signal<Phase>("idle");
  readonly figures = signal<Figures>(NO_FIGURES);
  readonly error = signal<ServerError | null>(null);
  readonly usage = signal<Usage | null>(null);
  readonly text = signal("");
  readonly confidence = signal<unknown[] | null>(null);
  readonly spans = signal<unknown[] | null>(null);

  readonly tokens: Token[] = [];
  readonly passMarks: PassMark[] = [];

  #painters = new Set<Painter>();
  #changedFrom = 0;
  #frame = 0;
  #content = "";
  #started = 0;
  #firstToken: number | null = null;
  #finishReason: string | null = null;
  #abort = new AbortController();

  onPaint(painter: Painter): () => void {
    this.#painters.add(painter);
    painter(0);
    return () => this.#painters.delete(painter);
  }

  /** Sends `body` and reads the whole answer. Never rejects: errors are in `error`. */
  async run(body: string): Promise<void> {
    const abort = this.#begin();
    try {
      const response = await apiFetch("v1/chat/completions", { method: "POST", body, signal: abort.signal });
      if (response.status === 401) askForKey();
      if (!response.ok) return this.#end("failed", await errorOf(response));
      for await (const event of eventsOf(response)) {
        const chunk = event as Chunk;
        if (chunk.error) return this.#end("failed", chunk.error);
        this.#take(chunk);
      }
      this.#end("done");
    } catch (error) {
      if (abort.signal.aborted) {
        if (abort === this.#abort) this.#end("stopped");
      } else if (error instanceof StreamBroken) this.#end("failed", { message: error.message });
      else this.#end("failed", { message: `The server cannot be reached (${String((error as Error).message ?? error)}).` });
    }
  }

  stop(): void {
    this.#abort.abort();
  }

  /** Returns to the state before the first request. */
  clear(): void {
    this.stop();
    this.#begin();
    this.phase.value = "idle";
    this.#paint();
  }

  #begin(): AbortController {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.tokens.length = this.passMarks.length = 0;
    this.#content = "";
    this.#firstToken = this.#finishReason = null;
    this.#changedFrom = 0;
    this.#started = performance.now();
    this.error.value = this.usage.value = this.confidence.value = this.spans.value = null;
    this.phase.value = "waiting";
    this.#paint();
    return this.#abort;
  }

  #end(phase: Phase, error: ServerError | null = null): void {
    this.phase.value = phase;
    this.error.value = error;
    this.#paint();
  }

  #take(chunk: Chunk): void {
    const choice = chunk.choices?.[0];
    if (choice?.origins) {
      const { index, tokens } = choice.origins;
      replaceTail(this.tokens, index, tokens);
      this.#changedFrom = Math.min(this.#changedFrom, index);
    }
    if (choice?.delta?.content) this.#content += choice.delta.content;
    if (choice?.finish_reason) this.#finishReason = choice.finish_reason;
    if (choice?.confidence) this.confidence.value = choice.confidence;
    if (choice?.spans) this.spans.value = choice.spans;
    if (chunk.usage) this.#count(chunk.usage);
    if (this.#firstToken === null && (this.tokens.length > 0 || this.#content)) {
      this.#firstToken = performance.now() - this.#started;
      this.phase.value = "streaming";
    }
    this.#schedule();
  }

  #count(usage: Usage): void {
    this.usage.value = usage;
    const passes = usage.completion_tokens_details?.forward_passes ?? 0;
    const mark = { passes, tokens: this.tokens.length || usage.completion_tokens };
    const last = this.passMarks.at(-1);
    if (last?.passes === passes) this.passMarks[this.passMarks.length - 1] = mark;
    else this.passMarks.push(mark);
  }

  #schedule(): void {
    if (this.#frame) return;
    // A background tab has no animation frames: its answer is painted at the end.
    this.#frame = requestAnimationFrame(() => this.#paint());
  }

  #paint(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const known = this.usage.peek();
    this.figures.value = {
      counts: countsOf(this.tokens),
      tokens: known?.completion_tokens ?? this.tokens.length,
      passes: known?.completion_tokens_details?.forward_passes ?? 0,
      firstToken: this.#firstToken,
      elapsed: performance.now() - this.#started,
      finishReason: this.#finishReason,
    };
    this.text.value = this.#content;
    const from = this.#changedFrom;
    this.#changedFrom = this.tokens.length;
    for (const painter of this.#painters) painter(from);
  }
}
