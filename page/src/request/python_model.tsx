/** The schema on screen as an equivalent pydantic model. */

import { useComputed } from "@preact/signals";

import { schema } from "../state";
import { pydanticModels } from "../code/pydantic";
import { Listing } from "../ui/listing";

export function PythonModel() {
  const text = useComputed(() => {
    if (schema.value === null) return "# the schema is not valid JSON yet";
    const { code, unexpressed } = pydanticModels(schema.value.value);
    return code ?? `# no pydantic model says the same: ${unexpressed}`;
  });
  return <Listing className="editor-frame code" label="pydantic model of the schema" text={text.value} />;
}
