/** The left side: the request. */

import { useSignal } from "@preact/signals";

import { promptText, running, seesImages, systemText } from "../state";
import { notSendable, race, run, stop } from "./actions";
import { ConstraintField } from "./constraint_field";
import { EXAMPLES, examples } from "./examples";
import { showExample } from "./form";
import { addPictures, filesOf, Pictures } from "./pictures";
import { Prompt } from "./prompt";
import { Settings } from "./settings";
import "./request.css";

export function RequestForm() {
  const dropping = useSignal(false);
  const withSystem = systemText.value.trim() !== "";
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  };
  return (
    <form
      class={dropping.value ? "card request dropping" : "card request"}
      aria-labelledby="request-title"
      onKeyDown={onKeyDown}
      onSubmit={(event) => event.preventDefault()}
      onDragOver={(event) => {
        if (!seesImages.value || !event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        dropping.value = true;
      }}
      onDragLeave={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) dropping.value = false;
      }}
      onDrop={(event) => {
        dropping.value = false;
        takeFiles(event, event.dataTransfer);
      }}
      onPaste={(event) => takeFiles(event, event.clipboardData)}
    >
      <h2 id="request-title" class="visually-hidden">
        Request
      </h2>
      <ExamplePicker />
      <Pictures />
      <Prompt id="prompt" label="Prompt" text={promptText} part={withSystem ? "messages[1]" : "messages[0]"} rows={4} />
      <details class="system" open={withSystem}>
        <summary>System message{withSystem ? "" : " (none)"}</summary>
        <Prompt id="system" label="System message" text={systemText} part={withSystem ? "messages[0]" : null} rows={2} />
      </details>
      <ConstraintField />
      <Settings />
      <Buttons />
    </form>
  );
}

function takeFiles(event: Event, data: DataTransfer | null): void {
  const files = filesOf(data);
  if (files.length === 0) return;
  event.preventDefault();
  void addPictures(files);
}

function ExamplePicker() {
  const chosen = useSignal(EXAMPLES[0]!.id);
  return (
    <div class="field inline">
      <label for="example">Example</label>
      <select
        id="example"
        value={chosen.value}
        onChange={(event) => {
          chosen.value = event.currentTarget.value;
          const found = EXAMPLES.find(({ id }) => id === chosen.value);
          if (found) showExample(found);
        }}
      >
        {examples.value.map(({ id, label }) => (
          <option key={id} value={id}>
            {label}
          </option>
        ))}
      </select>
    </div>
  );
}

function Buttons() {
  const why = notSendable.value;
  return (
    <div class="buttons">
      <button type="button" class="primary" id="run" disabled={running.value || why !== null} onClick={run} aria-keyshortcuts="Control+Enter Meta+Enter">
        Run
      </button>
      <button type="button" id="race" disabled={running.value || why !== null} onClick={race} title="The same request and seed, with leaps and drafts and without, side by side">
        Race
      </button>
      <button type="button" id="stop" disabled={!running.value} onClick={stop}>
        Stop
      </button>
      <span class="quiet hint" role="status">
        {why ?? ""}
      </span>
    </div>
  );
}
