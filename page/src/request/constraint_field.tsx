/** The constraint of the answer: a schema in its editor, a regular expression, a grammar, or none. */

import { lazyTab } from "../lazy";
import { asPython, constraintKind, grammarText, regexText, schema, schemaText, type ConstraintKind } from "../state";
import { formatted } from "../editor/format";
import { PythonModel } from "./python_model";

const KINDS: readonly { id: ConstraintKind; label: string }[] = [
  { id: "schema", label: "JSON Schema" },
  { id: "regex", label: "Regex" },
  { id: "grammar", label: "Grammar" },
  { id: "none", label: "Free text" },
];

const SchemaEditor = lazyTab(() => import("../editor/schema_editor").then((module) => module.SchemaEditor));

export function ConstraintField() {
  return (
    <fieldset class="constraint">
      <legend>Constraint</legend>
      <div class="segments">
        {KINDS.map(({ id, label }) => (
          <label key={id} class={constraintKind.value === id ? "on" : ""}>
            <input type="radio" name="kind" value={id} checked={constraintKind.value === id} onChange={() => (constraintKind.value = id)} />
            {label}
          </label>
        ))}
      </div>
      <Body kind={constraintKind.value} />
    </fieldset>
  );
}

function Body({ kind }: { kind: ConstraintKind }) {
  switch (kind) {
    case "schema":
      return <SchemaField />;
    case "regex":
      return (
        <div class="field">
          <label for="regex">Regular expression for the whole answer</label>
          <textarea id="regex" class="code" rows={3} spellcheck={false} value={regexText.value} onInput={(event) => (regexText.value = event.currentTarget.value)} />
        </div>
      );
    case "grammar":
      return (
        <div class="field">
          <label for="grammar">Grammar, as Lark or GBNF</label>
          <textarea id="grammar" class="code" rows={9} spellcheck={false} value={grammarText.value} onInput={(event) => (grammarText.value = event.currentTarget.value)} />
        </div>
      );
    case "none":
      return <p class="quiet">Free text: without a constraint there are no leaps.</p>;
  }
}

function SchemaField() {
  return (
    <>
      <div class="editor-tools">
        <label class="check">
          <input type="checkbox" checked={asPython.value} onChange={(event) => (asPython.value = event.currentTarget.checked)} />
          as a pydantic model
        </label>
        <button type="button" class="small" disabled={schema.value === null || asPython.value} onClick={() => (schemaText.value = formatted(schemaText.value))}>
          Format
        </button>
      </div>
      <div class="editor-frame" hidden={asPython.value}>
        <SchemaEditor />
      </div>
      {asPython.value && <PythonModel />}
      <p class="quiet small-print">Ctrl+Space completes keywords. Escape, then Tab leaves the editor.</p>
    </>
  );
}
