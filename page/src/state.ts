/** State that the parts of the page share. Each signal names its writer. */

import { batch, computed, effect, signal, type ReadonlySignal, type Signal } from "@preact/signals";

export { apiFetch, apiKey, askForKey, declineKey, errorOf, keyWanted, serverUrl, takeKey, type ServerError } from "./server/access";

// --- Tab and theme ---

export type Tab = "playground" | "operations" | "code";
export const tab: Signal<Tab> = signal("playground");

/** "auto" follows the system. Written by the header's switch. */
export const themeChoice: Signal<"auto" | "light" | "dark"> = signal("auto");
const systemIsDark = signal(matchMedia("(prefers-color-scheme: dark)").matches);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
  systemIsDark.value = event.matches;
});

/** The theme on screen. The style sheet reads it from `document.documentElement.dataset.theme`. */
export const theme: ReadonlySignal<"light" | "dark"> = computed(() => {
  if (themeChoice.value !== "auto") return themeChoice.value;
  return systemIsDark.value ? "dark" : "light";
});
effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
});

// --- The request in the form on the left ---

export const systemText = signal("");
export const promptText = signal("");
/** Pictures before the prompt. Links do not include them. */
export const pictures: Signal<readonly Picture[]> = signal([]);
export const model = signal("");
export const temperature = signal(0);
/** Null: the server chooses a random one. */
export const seed: Signal<number | null> = signal(null);
/** Null: the server's default. */
export const maxTokens: Signal<number | null> = signal(null);
/** Whether to request `confidence` and `spans`. */
export const confidenceWanted = signal(false);

/** A picture as it is sent: its file's name, and its bytes as a data URL. */
export interface Picture {
  name: string;
  url: string;
}

export type ConstraintKind = "schema" | "regex" | "grammar" | "none";
export const constraintKind: Signal<ConstraintKind> = signal("schema");
/** The text in the schema editor; it may be invalid JSON. */
export const schemaText = signal("");
/** Whether an equivalent pydantic model is shown in place of the editor. */
export const asPython = signal(false);
export const regexText = signal("");
export const grammarText = signal("");

/** A `response_format` of the API. */
export type ResponseFormat =
  | { type: "json_schema"; json_schema: { name: string; schema: unknown; strict: boolean } }
  | { type: "regex"; regex: string }
  | { type: "grammar"; grammar: string };

/** The parsed schema; null if the text is invalid JSON, or another kind of constraint is chosen. */
export const schema: ReadonlySignal<{ value: unknown } | null> = computed(() => {
  if (constraintKind.value !== "schema") return null;
  try {
    return { value: JSON.parse(schemaText.value) };
  } catch {
    return null;
  }
});

/** The constraint on screen as `response_format`; null if there is none, or its JSON is invalid. */
export const schemaSpec: ReadonlySignal<ResponseFormat | null> = computed(() => {
  switch (constraintKind.value) {
    case "schema":
      return schema.value && { type: "json_schema", json_schema: { name: nameOf(schema.value.value), schema: schema.value.value, strict: true } };
    case "regex":
      return regexText.value ? { type: "regex", regex: regexText.value } : null;
    case "grammar":
      return grammarText.value ? { type: "grammar", grammar: grammarText.value } : null;
    case "none":
      return null;
  }
});

/** A name that is valid in OpenAI's API, from the schema's title. */
export function nameOf(schema: unknown): string {
  const title = schema && typeof schema === "object" && "title" in schema ? String(schema.title) : "";
  return title.replace(/[^A-Za-z0-9_-]+/g, "_").replace(/^_+|_+$/g, "").slice(0, 64) || "answer";
}

// --- The registered schema: written by the graph ---

/** Id of the current `schemaSpec`, from `POST /v1/schemas`; null while it is unknown. */
export const schemaId: Signal<string | null> = signal(null);

// --- The answer: written by the playground ---

/** True from the request until the answer's end, its failure, or Stop. */
export const running = signal(false);
/** Text of the answer so far (content only); changes at most once a frame. "" before the first. */
export const currentAnswerText = signal("");
/** Number of the answer, which changes when one begins: walks of the text then start again. */
export const answerNumber = signal(0);

/** An entry of `confidence`, described in docs/confidence.md. */
export interface ConfidenceEntry {
  pointer: string;
  value?: unknown;
  next?: unknown;
  probability: number;
  mass?: number;
  alternatives?: { value?: unknown; next?: unknown; type?: string; other?: number; probability: number }[];
  tokens?: number;
  least_likely?: { token: string; probability: number };
  span?: Span;
}
/** A range of characters (code points) in a part of the prompt; `end` is exclusive. */
export interface Span {
  part: string;
  start: number;
  end: number;
}
/** `confidence` and `spans` of the answer; null until it ended, or if they were not requested. */
export const answerConfidence: Signal<ConfidenceEntry[] | null> = signal(null);
export const answerSpans: Signal<(Span & { pointer: string })[] | null> = signal(null);

// --- Messages between parts of the page ---

/** Spans to mark in the prompt; `part` belongs to the request on screen ("messages[0]"). Written by
 * the confidence panel, shown by the prompt. */
export const promptHighlights: Signal<(Span & { label: string })[]> = signal([]);

let schemaEditor: ((pointer: string) => void) | null = null;

/** Registers the editor's function that goes to a place; null: there is no editor. */
export function onGoToPointer(go: ((pointer: string) => void) | null): void {
  schemaEditor = go;
}

/** Selects the value at a JSON Pointer ("/properties/name", "" is all) in the schema's editor, and shows it.
 * If the pointer does not resolve, the deepest value on its path is selected. */
export function goToPointer(pointer: string): void {
  batch(() => {
    tab.value = "playground";
    asPython.value = false;
  });
  setTimeout(() => schemaEditor?.(pointer)); // the editor may be hidden until the next render
}

/** A problem that the server found in the schema on screen. "run": of a refused request, "explain": of
 * the registration; each writer replaces its own. Both are cleared when the schema changes. */
export interface SchemaProblem {
  pointer: string;
  message: string;
  severity: "error" | "warning";
}
export const schemaProblems: Signal<Readonly<Record<"run" | "explain", readonly SchemaProblem[]>>> = signal({ run: [], explain: [] });

/** A model in `/v1/models`. */
export interface ServerModel {
  id: string;
  input_modalities: readonly string[];
}
/** The server's models; null until it answered. Written at the start, and after each new key. */
export const serverModels: Signal<readonly ServerModel[] | null> = signal(null);

/** Whether the chosen model accepts images. */
export const seesImages: ReadonlySignal<boolean> = computed(
  () => serverModels.value?.find(({ id }) => id === model.value)?.input_modalities.includes("image") ?? false,
);
