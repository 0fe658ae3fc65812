/** Links with the request on screen in the URL fragment, which browsers do not send. */

import { batch } from "@preact/signals";

import {
  confidenceWanted,
  constraintKind,
  grammarText,
  maxTokens,
  promptText,
  regexText,
  schemaText,
  seed,
  systemText,
  tab,
  temperature,
  type ConstraintKind,
} from "./state";

const MARK = "#r=";
/** Maximum characters of a decompressed link. */
const LONGEST = 4_000_000;

const KINDS: readonly ConstraintKind[] = ["schema", "regex", "grammar", "none"];

interface Saved {
  v: 1;
  prompt: string;
  system?: string;
  kind: ConstraintKind;
  text?: string;
  temperature: number;
  seed?: number;
  max?: number;
  confidence?: true;
}

const texts = { schema: schemaText, regex: regexText, grammar: grammarText };

/** The address of this page with the request in it. The key is never part of it. */
export async function linkToPage(): Promise<string> {
  const kind = constraintKind.value;
  const saved: Saved = {
    v: 1,
    prompt: promptText.value,
    ...(systemText.value && { system: systemText.value }),
    kind,
    ...(kind !== "none" && { text: texts[kind].value }),
    temperature: temperature.value,
    ...(seed.value !== null && { seed: seed.value }),
    ...(maxTokens.value !== null && { max: maxTokens.value }),
    ...(confidenceWanted.value && { confidence: true as const }),
  };
  const bytes = new TextEncoder().encode(JSON.stringify(saved));
  const packed = new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new CompressionStream("deflate-raw"))).arrayBuffer());
  return location.href.split("#")[0] + MARK + base64url(packed);
}

/** Fills the form from the address, if it has a request that can be read. */
export async function restoreFromLink(): Promise<void> {
  if (!location.hash.startsWith(MARK)) return;
  try {
    const saved = JSON.parse(await unpacked(location.hash.slice(MARK.length)));
    if (isSaved(saved)) fill(saved);
  } catch {
    // not a link of this page, or not all of one
  }
}

function fill(saved: Saved): void {
  batch(() => {
    tab.value = "playground";
    promptText.value = saved.prompt;
    systemText.value = saved.system ?? "";
    constraintKind.value = saved.kind;
    if (saved.kind !== "none") texts[saved.kind].value = saved.text ?? "";
    temperature.value = saved.temperature;
    seed.value = saved.seed ?? null;
    maxTokens.value = saved.max ?? null;
    confidenceWanted.value = saved.confidence ?? false;
  });
}

function isSaved(saved: Record<string, unknown>): saved is Record<string, unknown> & Saved {
  const is = (value: unknown, type: string) => value === undefined || typeof value === type;
  return (
    saved["v"] === 1 &&
    typeof saved["prompt"] === "string" &&
    KINDS.includes(saved["kind"] as ConstraintKind) &&
    typeof saved["temperature"] === "number" &&
    is(saved["text"], "string") &&
    is(saved["system"], "string") &&
    is(saved["seed"], "number") &&
    is(saved["max"], "number") &&
    is(saved["confidence"], "boolean")
  );
}

async function unpacked(text: string): Promise<string> {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).pipeThrough(new TextDecoderStream()).getReader();
  let whole = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return whole;
    whole += value;
    if (whole.length > LONGEST) {
      await reader.cancel();
      throw new RangeError("the link is too large");
    }
  }
}

function base64url(bytes: Uint8Array): string {
  const chunks: string[] = [];
  for (let at = 0; at < bytes.length; at += 8192) chunks.push(String.fromCharCode(...bytes.subarray(at, at + 8192)));
  return btoa(chunks.join("")).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
