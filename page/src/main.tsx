import { effect } from "@preact/signals";
import { render } from "preact";

import "./styles/colours.css";
import "./styles/base.css";
// Style sheets of parts that are loaded later: without these imports nothing would load them.
import "uplot/dist/uPlot.min.css";
import "./code/code.css";
import "./operations/operations.css";
import "./ui/listing.css";
import { App } from "./app";
import { restoreFromLink } from "./link";
import { fillForm } from "./request/form";
import { apiFetch, apiKey, model, serverModels, type ServerModel } from "./state";

fillForm();
await restoreFromLink();
addEventListener("hashchange", () => void restoreFromLink());
render(<App />, document.getElementById("page")!);

// The models are requested at the start, and again after each change of the key.
effect(() => {
  void apiKey.value;
  void loadModels();
});

async function loadModels(): Promise<void> {
  const response = await apiFetch("v1/models").catch(() => null);
  if (!response?.ok) return;
  const { data } = (await response.json()) as { data: ServerModel[] };
  serverModels.value = data;
  if (!data.some(({ id }) => id === model.value)) model.value = data[0]?.id ?? "";
}
