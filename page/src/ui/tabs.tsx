/** Tabs as in the ARIA authoring practices: arrow keys move, only the chosen one takes Tab. */

import type { Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

interface Choice<Id extends string> {
  id: Id;
  label: string;
}

export function Tabs<Id extends string>({ label, prefix, tabs, chosen }: { label: string; prefix: string; tabs: readonly Choice<Id>[]; chosen: Signal<Id> }) {
  const move = (event: KeyboardEvent) => {
    const at = tabs.findIndex(({ id }) => id === chosen.value);
    const steps: Record<string, number> = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 };
    const to = steps[event.key];
    if (to === undefined) return;
    event.preventDefault();
    chosen.value = tabs[(to + tabs.length) % tabs.length]!.id;
    document.getElementById(`${prefix}-tab-${chosen.value}`)?.focus();
  };
  return (
    <div role="tablist" aria-label={label} class="tabs" onKeyDown={move}>
      {tabs.map(({ id, label }) => (
        <button
          key={id}
          type="button"
          role="tab"
          id={`${prefix}-tab-${id}`}
          aria-selected={chosen.value === id}
          aria-controls={`${prefix}-panel-${id}`}
          tabIndex={chosen.value === id ? 0 : -1}
          onClick={() => (chosen.value = id)}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

/** The content of a tab. It stays in the page while hidden, since it may have work in progress. */
export function TabPanel<Id extends string>({ prefix, id, chosen, children }: { prefix: string; id: Id; chosen: Signal<Id>; children: ComponentChildren }) {
  return (
    <div role="tabpanel" id={`${prefix}-panel-${id}`} aria-labelledby={`${prefix}-tab-${id}`} hidden={chosen.value !== id}>
      {children}
    </div>
  );
}
