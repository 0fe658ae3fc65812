/** The code tab: the current request as a program. */

import { signal, useComputed } from "@preact/signals";

import { requestFields, written } from "../request/body";
import { apiKey, pictures, schema, schemaText, serverUrl } from "../state";
import { withMarks } from "./pictures";
import { Copy } from "../ui/copy";
import { Listing } from "../ui/listing";
import { Tabs, TabPanel } from "../ui/tabs";
import { curl, pythonProgram, typescriptProgram, type OnScreen, type Snippet } from "./snippets";

type Language = "python" | "typescript" | "curl";
const language = signal<Language>("python");
const LANGUAGES: readonly { id: Language; label: string; needs: string; write: (screen: OnScreen) => Snippet }[] = [
  { id: "python", label: "Python", needs: "pip install openai pydantic", write: pythonProgram },
  { id: "typescript", label: "TypeScript", needs: "npm install openai zod", write: typescriptProgram },
  { id: "curl", label: "curl", needs: "", write: curl },
];

export function Code() {
  return (
    <section class="card code-tab" aria-labelledby="code-title">
      <h2 id="code-title">This request as code</h2>
      <Tabs label="Language" prefix="language" tabs={LANGUAGES} chosen={language} />
      {LANGUAGES.map(({ id, label, needs, write }) => (
        <TabPanel key={id} prefix="language" id={id} chosen={language}>
          {language.value === id && <Program label={label} needs={needs} write={write} />}
        </TabPanel>
      ))}
    </section>
  );
}

function Program({ label, needs, write }: { label: string; needs: string; write: (screen: OnScreen) => Snippet }) {
  const snippet = useComputed(() => write(onScreen()));
  const { code, note } = snippet.value;
  return (
    <>
      <div class="code-tools">
        <span class="quiet">{needs && <code>{needs}</code>}</span>
        <Copy text={code} />
      </div>
      {note && <p class="note">{note}</p>}
      <Listing className="program" label={`${label} program`} text={code} />
    </>
  );
}

function onScreen(): OnScreen {
  const { fields, files } = withMarks(requestFields(), pictures.value);
  return {
    url: serverUrl("v1"),
    withKey: apiKey.value !== "",
    fields,
    body: written(fields, 2),
    files,
    schema: schema.value && { value: schema.value.value, text: schemaText.value },
  };
}
