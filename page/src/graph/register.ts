/** Registers the constraint on screen with the server, which returns its id, report and graph. */

import { batch, effect, signal, type Signal } from "@preact/signals";

import { written } from "../request/body";
import { apiFetch, errorOf, type ServerError } from "../server/access";
import { apiKey, schema, schemaId, schemaProblems, schemaSpec, type SchemaProblem } from "../state";
import { indexOf, type Index } from "./index_of";
import { resolves } from "./place";
import type { Explain, Graph } from "./wire";

/** Milliseconds without a change until the constraint is sent. */
const PAUSE = 500;
/** Maximum warnings marked in the editor. */
const MARKED = 200;

export interface GraphOptions {
  open: readonly string[];
  max_states: number;
}

export interface Registered {
  id: string;
  /** Null if the constraint is not a JSON Schema, or there is an error instead. */
  explain: Explain | null;
  /** The error in place of the report; null if there is none. */
  unexplained: string | null;
  graph: Graph;
  /** The error in place of the graph; null if there is a graph. */
  undrawn: string | null;
  index: Index;
  options: GraphOptions;
}

/** Default limit: more states than people read at once, few enough to draw while they type. */
export const FEW_STATES = 400;

/** Options of the graph: pointers of unfolded values, and the maximum number of states. */
export const graphOptions: Signal<GraphOptions> = signal({ open: [], max_states: FEW_STATES });
/** The last registered constraint; it may be older than the one on screen. */
export const registered: Signal<Registered | null> = signal(null);
/** The error of the last registration; null if there is none. */
export const refusal: Signal<ServerError | null> = signal(null);
/** True from a change until the server's answer. */
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

/** Redraws the graph with other options. */
export function drawWith(options: Partial<GraphOptions>): void {
  graphOptions.value = { ...graphOptions.value, ...options };
  void register();
}

/** Unfolds the value at `pointer`, or folds it again with all unfolded values inside it. */
export function toggleFold(pointer: string): void {
  const { open } = graphOptions.value;
  const within = (each: string) => each === pointer || each.startsWith(`${pointer}/`);
  drawWith({ open: open.includes(pointer) ? open.filter((each) => !within(each)) : [...open, pointer] });
}

/** Registers the constraint on screen. One request at a time: later changes are sent after it. */
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

/** Drops the pointers of unfolded values that the current schema does not have. */
function forgetFolds(): void {
  const { open } = graphOptions.peek();
  const found = schema.peek();
  const kept = found === null ? [] : open.filter((pointer) => resolves(found.value, pointer));
  if (kept.length < open.length) graphOptions.value = { ...graphOptions.peek(), open: kept };
}

/** Error in place of a report or a graph. */
interface ErrorObject {
  error: { message: string };
}

const EMPTY: Graph = { whole: true, width: 1, height: 1, forced_share: 0, states: [], ways: [], boxes: [], routes: [], dot: "" };

async function send(body: string, options: GraphOptions): Promise<Registered | ServerError> {
  try {
    const response = await apiFetch("v1/schemas", { method: "POST", body });
    if (!response.ok) return await errorOf(response);
    const { id, explain, graph } = (await response.json()) as { id: string; explain: Explain | ErrorObject | null; graph: Graph | ErrorObject };
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

/** Warnings for relaxed keywords, and for keywords that are not enforced or have no effect. */
function warned(explain: Explain | null): SchemaProblem[] {
  if (explain === null) return [];
  const relaxed = explain.relaxed.map(({ pointer, reason }) => ({ pointer, message: `Not enforced: ${reason}`, severity: "warning" as const }));
  const unused = explain.keywords
    .filter(({ fate }) => fate === "not enforced" || fate === "no effect")
    .map(({ keyword, pointer, fate, note }) => ({ pointer, message: `${keyword}: ${fate}, ${note}`, severity: "warning" as const }));
  return [...relaxed, ...unused].slice(0, MARKED);
}
