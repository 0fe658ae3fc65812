/** Model, temperature, seed and the like, in a row. */

import type { Signal } from "@preact/signals";

import { confidenceWanted, maxTokens, model, seed, serverModels, temperature } from "../state";

export function Settings() {
  const names = serverModels.value?.map(({ id }) => id) ?? [];
  return (
    <div class="settings">
      <div class="field wide">
        <label for="model">Model</label>
        <select id="model" value={model.value} onChange={(event) => (model.value = event.currentTarget.value)}>
          {!names.includes(model.value) && <option value={model.value}>{model.value || "…"}</option>}
          {names.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </div>
      <div class="field">
        <label for="temperature">Temperature</label>
        <input
          id="temperature"
          type="number"
          min="0"
          max="2"
          step="0.1"
          value={temperature.value}
          onInput={(event) => {
            const value = event.currentTarget.valueAsNumber;
            if (!Number.isNaN(value)) temperature.value = value;
          }}
          // Left empty, the field would not show the value that is sent.
          onBlur={(event) => (event.currentTarget.value = String(temperature.value))}
        />
      </div>
      <Whole id="seed" label="Seed" value={seed} empty="any" min={0} />
      <Whole id="max-tokens" label="Max tokens" value={maxTokens} empty="none" min={1} />
      <label class="check">
        <input type="checkbox" checked={confidenceWanted.value} onChange={(event) => (confidenceWanted.value = event.currentTarget.checked)} />
        confidence and sources
      </label>
    </div>
  );
}

/** A field for a whole number, which may be empty. Others are sent, too: the server says what is wrong. */
function Whole({ id, label, value, empty, min }: { id: string; label: string; value: Signal<number | null>; empty: string; min: number }) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        type="number"
        min={min}
        step="1"
        placeholder={empty}
        value={value.value ?? ""}
        onInput={(event) => {
          const number = event.currentTarget.valueAsNumber;
          value.value = Number.isNaN(number) ? null : number;
        }}
      />
    </div>
  );
}
