/** The schema on screen as the pydantic model that it would come from. */

import { useComputed } from "@preact/signals";

import { schema } from "../state";
import { pydanticModels } from "../code/pydantic";

export function PythonModel() {
  const text = useComputed(() => {
    if (schema.value === null) return "# the schema is no JSON yet";
    const { code, unexpressed } = pydanticModels(schema.value.value);
    return code ?? `# no pydantic model says the same: ${unexpressed}`;
  });
  return (
    <pre class="editor-frame code" tabIndex={0} role="region" aria-label="pydantic model of the schema">
      {text.value}
    </pre>
  );
}
