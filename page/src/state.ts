/** What the parts of the page share. Each signal says who writes it. */

import { batch, computed, effect, signal, type ReadonlySignal, type Signal } from "@preact/signals";

export { apiFetch, apiKey, askForKey, declineKey, errorOf, keyWanted, serverUrl, takeKey, type ServerError } from "./server/access";

// --- What is on screen ---

export type Tab = "playground" | "operations" | "code";
export const tab: Signal<Tab> = signal("playground");

/** "auto" follows the system. Written by the header's switch. */
export const themeChoice: Signal<"auto" | "light" | "dark"> = signal("auto");
const systemIsDark = signal(matchMedia("(prefers-color-scheme: dark)").matches);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
  systemIsDark.value = event.matches;
});

/** The theme that is shown: `document.documentElement.dataset.theme` has it, too, for the style sheet. */
export const theme: ReadonlySignal<"light" | "dark"> = computed(() => {
  if (themeChoice.value !== "auto") return themeChoice.value;
  return systemIsDark.value ? "dark" : "light";
});
effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
});

// --- The request, as the form on the left has it ---

export const systemText = signal("");
export const promptText = signal("");
/** Pictures that come before the prompt. No link has them. */
export const pictures: Signal<readonly Picture[]> = signal([]);
export const model = signal("");
export const temperature = signal(0);
/** Null: the server draws one. */
export const seed: Signal<number | null> = signal(null);
/** Null: the server's own limit. */
export const maxTokens: Signal<number | null> = signal(null);
/** Asks for `confidence` and `spans` of the answer. */
export const confidenceWanted = signal(false);

/** A picture as it is sent: its file's name, and its bytes as a data URL. */
export interface Picture {
  name: string;
  url: string;
}

export type ConstraintKind = "schema" | "regex" | "grammar" | "none";
export const constraintKind: Signal<ConstraintKind> = signal("schema");
/** The schema as the editor has it; may be no JSON at the moment. */
export const schemaText = signal("");
/** Shows the schema as the pydantic model that it would come from, in place of the editor. */
export const asPython = signal(false);
export const regexText = signal("");
export const grammarText = signal("");

/** A `response_format` of the API. */
export type ResponseFormat =
  | { type: "json_schema"; json_schema: { name: string; schema: unknown; strict: boolean } }
  | { type: "regex"; regex: string }
  | { type: "grammar"; grammar: string };

/** The schema read, or null while the text is no JSON, or another constraint is chosen. */
export const schema: ReadonlySignal<{ value: unknown } | null> = computed(() => {
  if (constraintKind.value !== "schema") return null;
  try {
    return { value: JSON.parse(schemaText.value) };
  } catch {
    return null;
  }
});

/** The constraint on screen as `response_format`; null where there is none, or it cannot be read. */
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

/** A name that OpenAI's API takes, from the schema's title. */
export function nameOf(schema: unknown): string {
  const title = schema && typeof schema === "object" && "title" in schema ? String(schema.title) : "";
  return title.replace(/[^A-Za-z0-9_-]+/g, "_").replace(/^_+|_+$/g, "").slice(0, 64) || "answer";
}

// --- The schema as the server knows it: written by the graph ---

/** Id that `POST /v1/schemas` gave `schemaSpec` as it is now; null while it is not known. */
export const schemaId: Signal<string | null> = signal(null);

// --- The answer: written by the playground ---

/** True from the request until the answer's end, its failure, or Stop. */
export const running = signal(false);
/** Text of the answer so far (content only); changes at most once a frame. "" before the first. */
export const currentAnswerText = signal("");
/** Counts up when an answer begins: whoever walks the text starts anew. */
export const answerNumber = signal(0);

/** An entry of `confidence`, as docs/confidence.md says. */
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
/** Characters (code points) of a part of the prompt, `end` not included. */
export interface Span {
  part: string;
  start: number;
  end: number;
}
/** `confidence` and `spans` of the answer; null until it ended, or where they were not asked for. */
export const answerConfidence: Signal<ConfidenceEntry[] | null> = signal(null);
export const answerSpans: Signal<(Span & { pointer: string })[] | null> = signal(null);

// --- What parts ask of one another ---

/** Places of the prompt to be marked, as `part`s of the request on screen ("messages[0]"). Written by
 * the confidence panel, shown by the prompt. */
export const promptHighlights: Signal<(Span & { label: string })[]> = signal([]);

let schemaEditor: ((pointer: string) => void) | null = null;

/** The editor says how it goes to a place. */
export function onGoToPointer(go: ((pointer: string) => void) | null): void {
  schemaEditor = go;
}

/** Selects the value at a JSON Pointer ("/properties/name", "" is all) in the schema's editor, and shows it.
 * A pointer that leads nowhere goes as far as it leads. */
export function goToPointer(pointer: string): void {
  batch(() => {
    tab.value = "playground";
    asPython.value = false;
  });
  setTimeout(() => schemaEditor?.(pointer)); // the editor may be hidden until what has changed is shown
}

/** What the server says is wrong in the schema on screen. Each writer replaces its own: "run" is a request that was
 * refused, "explain" the schema registered. Both go when the schema's text changes. */
export interface SchemaProblem {
  pointer: string;
  message: string;
  severity: "error" | "warning";
}
export const schemaProblems: Signal<Readonly<Record<"run" | "explain", readonly SchemaProblem[]>>> = signal({ run: [], explain: [] });

/** A model as `/v1/models` has it. */
export interface ServerModel {
  id: string;
  input_modalities: readonly string[];
}
/** The models that the server has; null until it answered. Written at the start, and with each key. */
export const serverModels: Signal<readonly ServerModel[] | null> = signal(null);

/** Whether the chosen model takes pictures. */
export const seesImages: ReadonlySignal<boolean> = computed(
  () => serverModels.value?.find(({ id }) => id === model.value)?.input_modalities.includes("image") ?? false,
);
