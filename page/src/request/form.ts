/** Filling the form: from an example, or from a link. */

import { batch } from "@preact/signals";

import { formatted } from "../editor/format";
import { confidenceWanted, constraintKind, grammarText, maxTokens, pictures, promptText, regexText, schemaText, seed, systemText, temperature } from "../state";
import { EXAMPLES, type Example } from "./examples";

export function showExample(example: Example): void {
  batch(() => {
    promptText.value = example.prompt;
    systemText.value = example.system ?? "";
    if (!example.seen) pictures.value = [];
    constraintKind.value = example.kind;
    confidenceWanted.value = example.confidence ?? false;
    temperature.value = 0;
    seed.value = null;
    maxTokens.value = null;
    if (example.kind === "schema") schemaText.value = formatted(JSON.stringify(example.constraint));
    if (example.kind === "regex") regexText.value = String(example.constraint);
    if (example.kind === "grammar") grammarText.value = String(example.constraint);
  });
}

/** Fills every field, so that each kind of constraint can be tried at once. */
export function fillForm(): void {
  for (const kind of ["regex", "grammar", "schema"]) showExample(EXAMPLES.find((example) => example.kind === kind)!);
}
