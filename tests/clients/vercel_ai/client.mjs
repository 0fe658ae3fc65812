// Vercel's ai, through @ai-sdk/openai-compatible and through @ai-sdk/openai (chat and responses).

import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import {
  APICallError,
  Output,
  generateObject,
  generateText,
  isStepCount,
  jsonSchema,
  streamObject,
  streamText,
  tool,
} from "ai";
import { z } from "zod";
import {
  BASE_URL,
  CARD,
  CARD_TEXT,
  CONTACT_TEXT,
  MODEL,
  REVIEW_TEXT,
  UNSUPPORTED_SCHEMA,
  check,
  pictureBytes,
  pictureUrl,
  runChecks,
} from "./features.mjs";
import { Card, Contact, Review } from "./types.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

let sent = 0;
const counted = (...request) => {
  sent += 1;
  return fetch(...request);
};
const compatible = createOpenAICompatible({
  name: "leapjson",
  baseURL: BASE_URL,
  apiKey: "none",
  supportsStructuredOutputs: true,
  includeUsage: true,
  fetch: counted,
});
const withoutSchemas = createOpenAICompatible({ name: "leapjson", baseURL: BASE_URL });
const openai = createOpenAI({ baseURL: BASE_URL, apiKey: "none", fetch: counted });

const temperature = 0;
const prompt = CONTACT_TEXT;

const seeing = (part) => [
  { role: "user", content: [{ type: "text", text: CARD_TEXT }, part] },
];

function saving(saved) {
  return tool({
    description: "Saves a contact.",
    inputSchema: Contact,
    strict: true,
    execute: (contact) => {
      saved.push(Contact.parse(contact));
      return "saved";
    },
  });
}

const models = [
  { by: "openai-compatible", model: compatible(MODEL) },
  { by: "openai.chat", model: openai.chat(MODEL) },
  { by: "openai.responses", model: openai.responses(MODEL) },
];

for (const { by, model } of models) {
  const responses = by === "openai.responses";
  const feature = (chat, other) => (responses ? other : chat);

  check(feature("text", "responses"), `${by}: generateText`, async () => {
    const { text, usage, finishReason } = await generateText({
      model,
      prompt: "Hello",
      temperature,
    });
    assert.ok(text);
    assert.equal(finishReason, "stop");
    assert.ok(usage.totalTokens > 0);
  });

  check(feature("stream", "responses streamed"), `${by}: streamText`, async () => {
    const result = streamText({ model, prompt: "Hello", temperature });
    let text = "";
    for await (const delta of result.textStream) text += delta;
    const whole = await generateText({ model, prompt: "Hello", temperature });
    assert.equal(text, whole.text);
    assert.ok((await result.usage).totalTokens > 0);
  });

  check(feature("json_schema", "responses"), `${by}: generateObject`, async () => {
    const { object } = await generateObject({ model, schema: Contact, prompt, temperature });
    assert.equal(Contact.parse(object).name, "Daniel Okafor");
  });

  check(feature("json_schema", "responses"), `${by}: generateObject, arrays and enums`, async () => {
    const items = await generateObject({
      model,
      output: "array",
      schema: z.object({ word: z.string().max(10) }),
      prompt: REVIEW_TEXT,
      temperature,
      maxOutputTokens: 200,
    });
    assert.ok(Array.isArray(items.object));
    const choice = await generateObject({
      model,
      output: "enum",
      enum: ["positive", "negative"],
      prompt: REVIEW_TEXT,
      temperature,
    });
    assert.ok(["positive", "negative"].includes(choice.object));
  });

  check(feature("json_object", "responses"), `${by}: generateObject without a schema`, async () => {
    const { object } = await generateObject({
      model,
      output: "no-schema",
      prompt: `${prompt} Reply in JSON.`,
      temperature,
    });
    assert.equal(typeof object, "object");
  });

  check(feature("stream", "responses streamed"), `${by}: streamObject`, async () => {
    const { partialObjectStream, object } = streamObject({
      model,
      schema: Review,
      prompt: REVIEW_TEXT,
      temperature,
    });
    let partial;
    for await (partial of partialObjectStream);
    assert.deepEqual(partial, Review.parse(await object));
  });

  check(feature("json_schema", "responses"), `${by}: generateText with output`, async () => {
    const { output } = await generateText({
      model,
      output: Output.object({ schema: Review }),
      prompt: REVIEW_TEXT,
      temperature,
    });
    assert.equal(Review.parse(output).rating, 2);
  });

  check(feature("tools", "responses tools"), `${by}: generateText, required`, async () => {
    const saved = [];
    const { toolCalls, finishReason } = await generateText({
      model,
      prompt,
      tools: { save_contact: saving(saved) },
      toolChoice: "required",
      temperature,
    });
    assert.equal(toolCalls[0].toolName, "save_contact");
    assert.deepEqual(Contact.parse(toolCalls[0].input), saved[0]);
    assert.equal(finishReason, "tool-calls");
  });

  check(feature("tools", "responses tools"), `${by}: generateText, by name`, async () => {
    const { toolCalls } = await generateText({
      model,
      prompt: REVIEW_TEXT,
      tools: { save_contact: saving([]), rate: tool({ inputSchema: Review }) },
      toolChoice: { type: "tool", toolName: "rate" },
      temperature,
    });
    assert.equal(toolCalls[0].toolName, "rate");
    Review.parse(toolCalls[0].input);
  });

  check(feature("tools", "responses tools"), `${by}: generateText, auto`, async () => {
    const saved = [];
    const { text, toolCalls } = await generateText({
      model,
      prompt,
      tools: { save_contact: saving(saved) },
      temperature,
    });
    assert.ok(text || toolCalls.length);
    assert.equal(saved.length, toolCalls.length);
    return toolCalls.length ? "called" : "the model answered in text";
  });

  check(feature("tools streamed", "responses tools"), `${by}: streamText, required`, async () => {
    const saved = [];
    const result = streamText({
      model,
      prompt,
      tools: { save_contact: saving(saved) },
      toolChoice: "required",
      temperature,
    });
    let text = "";
    let first;
    for await (const part of result.fullStream) {
      if (part.type === "error") throw part.error;
      if (part.type === "tool-input-start") first ??= part.id;
      if (part.type === "tool-input-delta" && part.id === first) text += part.delta;
    }
    const [call] = await result.toolCalls;
    assert.deepEqual(JSON.parse(text), call.input);
    assert.deepEqual(saved[0], call.input);
  });

  check(feature("tool loop", "responses tools"), `${by}: two steps`, async () => {
    const saved = [];
    const { steps, text } = await generateText({
      model,
      prompt,
      tools: { save_contact: saving(saved) },
      stopWhen: isStepCount(2),
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
      temperature,
    });
    assert.equal(steps.length, 2);
    assert.ok(saved.length >= 1);
    assert.ok(text);
  });

  check("images", `${by}: generateObject, an image's bytes`, async () => {
    const messages = seeing({ type: "image", image: pictureBytes() });
    const { object } = await generateObject({ model, schema: Card, messages, temperature });
    assert.deepEqual(object, CARD);
  });

  check("images", `${by}: generateText with output, a file that is a data URL`, async () => {
    const messages = seeing({ type: "file", data: pictureUrl(), mediaType: "image/png" });
    const output = Output.object({ schema: Card });
    const result = await generateText({ model, output, messages, temperature });
    assert.deepEqual(result.output, CARD);
  });

  check("errors", `${by}: a schema that cannot be enforced is a 400, not retried`, async () => {
    sent = 0;
    const schema = jsonSchema(UNSUPPORTED_SCHEMA);
    await assert.rejects(generateObject({ model, schema, prompt }), (error) => {
      assert.ok(APICallError.isInstance(error), `${error}`);
      assert.equal(error.statusCode, 400);
      assert.match(error.message, /uniqueItems/);
      return true;
    });
    assert.equal(sent, 1);
  });
}

check("json_schema", "openai-compatible without supportsStructuredOutputs", async () => {
  const { object } = await generateObject({
    model: withoutSchemas(MODEL),
    schema: Contact,
    prompt,
    temperature,
  }).catch((error) => ({ object: error.text ?? Promise.reject(error) }));
  const answer = await object;
  if (typeof answer !== "string") {
    Contact.parse(answer);
    return "json_object, and the model kept to the schema";
  }
  assert.equal(typeof JSON.parse(answer), "object");
  return "json_object: the package does not send the schema, and the model left it";
});

check("completions", "openai-compatible: completionModel", async () => {
  const model = compatible.completionModel(MODEL);
  const { text } = await generateText({ model, prompt: "Hello", maxOutputTokens: 8, temperature });
  assert.ok(text);
  const result = streamText({ model, prompt: "Hello", maxOutputTokens: 8, temperature });
  let streamed = "";
  for await (const delta of result.textStream) streamed += delta;
  assert.equal(streamed, text);
});

await runChecks();
