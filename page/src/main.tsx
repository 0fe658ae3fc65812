import { effect } from "@preact/signals";
import { render } from "preact";

import "./styles/colours.css";
import "./styles/base.css";
// Of parts that are loaded later: their style sheets have to be here, or nothing would load them.
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

// The models are asked for at the start, and again with each key that is given.
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
