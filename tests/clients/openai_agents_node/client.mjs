// @openai/agents: agents with an output type and with tools, over both interfaces.

import assert from "node:assert/strict";
import {
  Agent,
  OpenAIChatCompletionsModel,
  OpenAIResponsesModel,
  Runner,
  setTracingDisabled,
  tool,
} from "@openai/agents";
import OpenAI from "openai";
import {
  BASE_URL,
  CARD,
  CARD_TEXT,
  CONTACT_TEXT,
  MODEL,
  REVIEW_TEXT,
  check,
  pictureUrl,
  runChecks,
} from "./features.mjs";
import { Card, Contact, Review } from "./types.mjs";

setTracingDisabled(true);

const client = new OpenAI({ baseURL: BASE_URL, apiKey: "none", maxRetries: 0 });
const runner = new Runner({ tracingDisabled: true });

const interfaces = [
  {
    by: "chat",
    model: () => new OpenAIChatCompletionsModel(client, MODEL),
    feature: { text: "text", schema: "json_schema", stream: "stream", tools: "tools" },
  },
  {
    by: "responses",
    model: () => new OpenAIResponsesModel(client, MODEL),
    feature: {
      text: "responses",
      schema: "responses",
      stream: "responses streamed",
      tools: "responses tools",
    },
  },
];

for (const { by, model, feature } of interfaces) {
  const agent = (options = {}, toolChoice) =>
    new Agent({
      name: "extractor",
      model: model(),
      modelSettings: { temperature: 0, parallelToolCalls: false, toolChoice },
      ...options,
    });
  const saving = (saved) =>
    tool({
      name: "save_contact",
      description: "Saves a contact.",
      parameters: Contact,
      execute: (contact) => {
        saved.push(contact);
        return "saved";
      },
    });

  check(feature.text, `${by}: an agent without an output type`, async () => {
    const result = await runner.run(agent({ instructions: "Be short." }), "Hello");
    assert.ok(result.finalOutput);
  });

  check(feature.schema, `${by}: outputType`, async () => {
    const result = await runner.run(agent({ outputType: Contact }), CONTACT_TEXT);
    assert.equal(result.finalOutput.name, "Daniel Okafor");
  });

  check(feature.stream, `${by}: stream, outputType`, async () => {
    const options = { stream: true };
    const result = await runner.run(agent({ outputType: Review }), REVIEW_TEXT, options);
    let text = "";
    for await (const part of result.toTextStream()) text += part;
    await result.completed;
    assert.deepEqual(JSON.parse(text), result.finalOutput);
    assert.equal(result.finalOutput.rating, 2);
  });

  check(feature.tools, `${by}: a function tool, stop_on_first_tool`, async () => {
    const saved = [];
    const options = { tools: [saving(saved)], toolUseBehavior: "stop_on_first_tool" };
    const result = await runner.run(agent(options, "required"), CONTACT_TEXT);
    assert.equal(result.finalOutput, "saved");
    Contact.parse(saved[0]);
  });

  check(feature.tools, `${by}: a call, its result, an answer of a type`, async () => {
    const saved = [];
    const options = { tools: [saving(saved)], outputType: Contact };
    const first = agent(options, "required");
    first.resetToolChoice = true; // to "auto", after the first call
    try {
      const result = await runner.run(first, CONTACT_TEXT, { maxTurns: 3 });
      Contact.parse(result.finalOutput);
    } catch (error) {
      assert.equal(error.constructor.name, "MaxTurnsExceededError");
      return `stopped: the model called ${saved.length} times and did not finish`;
    } finally {
      assert.ok(saved.length);
    }
  });

  check("images", `${by}: input_image, outputType`, async () => {
    const content = [
      { type: "input_text", text: CARD_TEXT },
      { type: "input_image", image: pictureUrl() },
    ];
    const question = [{ role: "user", content }];
    const result = await runner.run(agent({ outputType: Card }), question);
    assert.deepEqual(result.finalOutput, CARD);
  });
}

check("responses", "responses: previousResponseId", async () => {
  const agent = new Agent({
    name: "extractor",
    model: new OpenAIResponsesModel(client, MODEL),
    modelSettings: { temperature: 0 },
  });
  const first = await runner.run(agent, "Hello");
  assert.ok(first.lastResponseId);
  const second = await runner.run(agent, "And now?", { previousResponseId: first.lastResponseId });
  assert.ok(second.finalOutput);
  const kept = await client.responses.retrieve(second.lastResponseId);
  assert.equal(kept.previous_response_id, first.lastResponseId);
});

await runChecks();
