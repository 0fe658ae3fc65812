// Vercel's ai in its last three versions: its provider for Anthropic, and multi-step Responses.

import assert from "node:assert/strict";
import * as anthropic4 from "@ai-sdk/anthropic";
import * as ai7 from "ai";
import * as ai5 from "ai-5";
import * as ai6 from "ai-6";
import * as anthropic2 from "anthropic-2";
import * as anthropic3 from "anthropic-3";
import * as openai2 from "openai-2";
import * as openai3 from "openai-3";
import { BASE_URL, CONTACT_TEXT, MODEL, check, runChecks } from "./features.mjs";
import { Contact } from "./types.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const at = { baseURL: BASE_URL, apiKey: "none" };
const temperature = 0;

const versions = [
  { version: 5, ai: ai5, anthropic: anthropic2, openai: openai2 },
  { version: 6, ai: ai6, anthropic: anthropic3, openai: openai3 },
  { version: 7, ai: ai7, anthropic: anthropic4 },
];

for (const { version, ai, anthropic, openai } of versions) {
  const model = anthropic.createAnthropic(at)(MODEL);
  const saving = (saved) =>
    ai.tool({
      description: "Saves a contact.",
      inputSchema: Contact,
      execute: (contact) => {
        saved.push(Contact.parse(contact));
        return "saved";
      },
    });
  const twoSteps = async (model, saved) =>
    ai.generateText({
      model,
      prompt: CONTACT_TEXT,
      tools: { save_contact: saving(saved) },
      temperature,
      stopWhen: ai.stepCountIs?.(2) ?? ai.isStepCount(2),
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? "none" : "required" }),
    });

  check("messages", `ai ${version}: generateText`, async () => {
    const { text, finishReason } = await ai.generateText({ model, prompt: "Hello", temperature });
    assert.ok(text);
    assert.equal(finishReason, "stop");
  });

  check("messages streamed", `ai ${version}: streamText`, async () => {
    const result = ai.streamText({ model, prompt: "Hello", temperature });
    let text = "";
    for await (const delta of result.textStream) text += delta;
    const whole = await ai.generateText({ model, prompt: "Hello", temperature });
    assert.equal(text, whole.text);
  });

  check("messages", `ai ${version}: generateObject`, async () => {
    const { object } = await ai.generateObject({
      model,
      schema: Contact,
      prompt: CONTACT_TEXT,
      temperature,
    });
    Contact.parse(object);
  });

  check("messages tools", `ai ${version}: two steps`, async () => {
    const saved = [];
    const { text, steps } = await twoSteps(model, saved);
    assert.ok(saved.length);
    assert.equal(steps.length, 2);
    assert.ok(text);
  });

  if (!openai) continue;
  check("responses tools", `ai ${version}: openai.responses, two steps`, async () => {
    const saved = [];
    const bodies = [];
    const provider = openai.createOpenAI({
      ...at,
      fetch: (url, options) => {
        bodies.push(JSON.parse(options.body));
        return fetch(url, options);
      },
    });
    const { text, steps } = await twoSteps(provider.responses(MODEL), saved);
    assert.ok(saved.length);
    assert.equal(steps.length, 2);
    assert.ok(text);
    const referred = bodies[1].input.some(({ type }) => type === "item_reference");
    return referred ? "the call as a reference" : "the call as an item";
  });
}

await runChecks();
