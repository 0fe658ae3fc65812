/** The page: a header, and one of three tabs. */

import { lazyTab } from "./lazy";
import { Playground } from "./playground/playground";
import { tab, type Tab } from "./state";

const TABS: { id: Tab; label: string }[] = [
  { id: "playground", label: "Playground" },
  { id: "operations", label: "Operations" },
  { id: "code", label: "Code" },
];

const Operations = lazyTab(() => import("./operations/operations").then((module) => module.Operations));
const Code = lazyTab(() => import("./code/code").then((module) => module.Code));

export function App() {
  return (
    <>
      <header class="top">
        <h1>Leapjson</h1>
        <div role="tablist" aria-label="Page">
          {TABS.map(({ id, label }) => (
            <button key={id} role="tab" id={`tab-${id}`} aria-selected={tab.value === id} aria-controls={`panel-${id}`} onClick={() => (tab.value = id)}>
              {label}
            </button>
          ))}
        </div>
      </header>
      <main>
        <section role="tabpanel" id="panel-playground" aria-labelledby="tab-playground" hidden={tab.value !== "playground"}>
          <Playground />
        </section>
        <section role="tabpanel" id="panel-operations" aria-labelledby="tab-operations" hidden={tab.value !== "operations"}>
          {tab.value === "operations" && <Operations />}
        </section>
        <section role="tabpanel" id="panel-code" aria-labelledby="tab-code" hidden={tab.value !== "code"}>
          {tab.value === "code" && <Code />}
        </section>
      </main>
    </>
  );
}
