// Mastra: agents with structured output and with tools, over chat completions and responses.

import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import {
  BASE_URL,
  CONTACT_TEXT,
  MODEL,
  UNSUPPORTED_SCHEMA,
  check,
  runChecks,
} from "./features.mjs";
import { Contact } from "./types.mjs";

const compatible = createOpenAICompatible({
  name: "leapjson",
  baseURL: BASE_URL,
  apiKey: "none",
  supportsStructuredOutputs: true,
  includeUsage: true,
});
const openai = createOpenAI({ baseURL: BASE_URL, apiKey: "none" });
const modelSettings = { temperature: 0, maxRetries: 0 };

const models = [
  { by: "its own router", responses: false, model: { id: `leapjson/${MODEL}`, url: BASE_URL, apiKey: "none" } },
  { by: "openai-compatible", responses: false, model: compatible(MODEL) },
  { by: "openai.responses", responses: true, model: openai.responses(MODEL) },
];

for (const { by, responses, model } of models) {
  const agent = (options = {}) =>
    new Agent({ id: "extractor", name: "extractor", instructions: "Be short.", model, ...options });
  const feature = (chat, other) => (responses ? other : chat);

  check(feature("text", "responses"), `${by}: generate`, async () => {
    const { text, usage } = await agent().generate("Hello", { modelSettings });
    assert.ok(text);
    assert.ok(usage.totalTokens > 0);
  });

  check(feature("stream", "responses streamed"), `${by}: stream`, async () => {
    const stream = await agent().stream("Hello", { modelSettings });
    let text = "";
    for await (const part of stream.textStream) text += part;
    assert.ok(text);
    assert.equal(text, await stream.text);
  });

  check(feature("json_schema", "responses"), `${by}: structuredOutput`, async () => {
    const options = { modelSettings, structuredOutput: { schema: Contact } };
    const { object } = await agent().generate(CONTACT_TEXT, options);
    const { name } = Contact.parse(object);
    // For responses the SDK leaves the temperature out, so that the answer is drawn.
    if (!responses) assert.equal(name, "Daniel Okafor");
  });

  check(feature("tools", "responses tools"), `${by}: a tool, and a second step`, async () => {
    const saved = [];
    const saving = createTool({
      id: "save_contact",
      description: "Saves a contact.",
      inputSchema: Contact,
      execute: async (input) => {
        saved.push(Contact.parse(input));
        return { saved: true };
      },
    });
    const { text } = await agent({ tools: { save_contact: saving } }).generate(CONTACT_TEXT, {
      modelSettings,
      toolChoice: "required",
      maxSteps: 2,
      prepareStep: ({ stepNumber }) => (stepNumber ? { toolChoice: "none" } : {}),
    });
    assert.ok(saved.length);
    assert.ok(text);
  });
}

check("errors", "a schema that cannot be enforced is a 400", async () => {
  const agent = new Agent({
    id: "numbers",
    name: "numbers",
    instructions: "Count.",
    model: compatible(MODEL),
  });
  const options = { modelSettings, structuredOutput: { schema: UNSUPPORTED_SCHEMA } };
  await assert.rejects(agent.generate(CONTACT_TEXT, options), /uniqueItems/);
});

await runChecks();
