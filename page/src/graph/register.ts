/** The constraint on screen, registered with the server: its id, what is explained of it, and its graph. */

import { batch, effect, signal, type Signal } from "@preact/signals";

import { written } from "../request/body";
import { apiFetch, errorOf, type ServerError } from "../server/access";
import { apiKey, schema, schemaId, schemaProblems, schemaSpec, type SchemaProblem } from "../state";
import { indexOf, type Index } from "./index_of";
import { resolves } from "./place";
import type { Explain, Graph } from "./wire";

/** Milliseconds without a change after which a constraint is sent. */
const PAUSE = 500;
/** Problems that are marked in the editor at once. */
const MARKED = 200;

export interface GraphOptions {
  open: readonly string[];
  max_states: number;
}

export interface Registered {
  id: string;
  /** Null where the constraint is no JSON Schema, or no report could be made. */
  explain: Explain | null;
  /** Why there is no report. */
  unexplained: string | null;
  graph: Graph;
  /** Why the graph is empty. */
  undrawn: string | null;
  index: Index;
  options: GraphOptions;
}

/** Some more than people read at once, and few enough to be drawn while they type. */
export const FEW_STATES = 400;

/** How the graph is drawn: what of it is unfolded, and how much. */
export const graphOptions: Signal<GraphOptions> = signal({ open: [], max_states: FEW_STATES });
/** What was registered last; it may be older than the constraint on screen. */
export const registered: Signal<Registered | null> = signal(null);
/** Why the constraint on screen cannot be registered. */
export const refusal: Signal<ServerError | null> = signal(null);
/** True from a change on until the server has answered. */
export const registering = signal(false);

let timer = 0;
let inFlight = false;
let changedMeanwhile = false;

effect(() => {
  const there = schemaSpec.value !== null;
  void apiKey.value;
  batch(() => {
    schemaId.value = null;
    registering.value = there;
    if (!there) refusal.value = null;
  });
  clearTimeout(timer);
  if (there) timer = setTimeout(() => void register(), PAUSE);
});

/** Draws the graph anew with other options. */
export function drawWith(options: Partial<GraphOptions>): void {
  graphOptions.value = { ...graphOptions.value, ...options };
  void register();
}

/** Opens what is folded at `pointer`, or folds it again with all that is open inside. */
export function toggleFold(pointer: string): void {
  const { open } = graphOptions.value;
  const within = (each: string) => each === pointer || each.startsWith(`${pointer}/`);
  drawWith({ open: open.includes(pointer) ? open.filter((each) => !within(each)) : [...open, pointer] });
}

/** Registers what is on screen. One request at a time: what changes meanwhile is sent after it. */
export async function register(): Promise<void> {
  clearTimeout(timer);
  const spec = schemaSpec.peek();
  if (spec === null) return;
  if (inFlight) {
    changedMeanwhile = true;
    return;
  }
  inFlight = true;
  registering.value = true;
  forgetFolds();
  const options = graphOptions.peek();
  const outcome = await send(written({ response_format: spec, graph: { ...options, drawn: true } }), options);
  inFlight = false;
  if (changedMeanwhile || spec !== schemaSpec.peek()) {
    changedMeanwhile = false;
    void register();
    return;
  }
  batch(() => take(outcome, spec.type === "json_schema"));
}

/** What was open in an earlier schema, and is not in this one. */
function forgetFolds(): void {
  const { open } = graphOptions.peek();
  const found = schema.peek();
  const kept = found === null ? [] : open.filter((pointer) => resolves(found.value, pointer));
  if (kept.length < open.length) graphOptions.value = { ...graphOptions.peek(), open: kept };
}

/** In place of what would have been too much. */
interface Untold {
  error: { message: string };
}

const EMPTY: Graph = { whole: true, width: 1, height: 1, forced_share: 0, states: [], ways: [], boxes: [], routes: [], dot: "" };

async function send(body: string, options: GraphOptions): Promise<Registered | ServerError> {
  try {
    const response = await apiFetch("v1/schemas", { method: "POST", body });
    if (!response.ok) return await errorOf(response);
    const { id, explain, graph } = (await response.json()) as { id: string; explain: Explain | Untold | null; graph: Graph | Untold };
    const drawn = "error" in graph ? EMPTY : graph;
    return {
      id,
      explain: explain && "error" in explain ? null : explain,
      unexplained: explain && "error" in explain ? explain.error.message : null,
      graph: drawn,
      undrawn: "error" in graph ? graph.error.message : null,
      index: indexOf(drawn),
      options,
    };
  } catch (error) {
    return { message: `The server cannot be reached (${String((error as Error).message ?? error)}).` };
  }
}

function take(outcome: Registered | ServerError, isSchema: boolean): void {
  const failed = "message" in outcome;
  registering.value = false;
  refusal.value = failed ? outcome : null;
  schemaId.value = failed ? null : outcome.id;
  if (!failed) registered.value = outcome;
  if (isSchema) schemaProblems.value = { ...schemaProblems.peek(), explain: failed ? refused(outcome) : warned(outcome.explain) };
}

function refused(error: ServerError): SchemaProblem[] {
  return typeof error.pointer === "string" ? [{ pointer: error.pointer, message: error.message, severity: "error" }] : [];
}

/** What answers are not held to, though the schema may be thought to say it. */
function warned(explain: Explain | null): SchemaProblem[] {
  if (explain === null) return [];
  const relaxed = explain.relaxed.map(({ pointer, reason }) => ({ pointer, message: `Not enforced: ${reason}`, severity: "warning" as const }));
  const unused = explain.keywords
    .filter(({ fate }) => fate === "not enforced" || fate === "no effect")
    .map(({ keyword, pointer, fate, note }) => ({ pointer, message: `${keyword}: ${fate}, ${note}`, severity: "warning" as const }));
  return [...relaxed, ...unused].slice(0, MARKED);
}
