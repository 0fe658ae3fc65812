// The Anthropic package for Node.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import {
  BASE_URL,
  CARD,
  CARD_TEXT,
  CONTACT,
  MODEL,
  check,
  pictureBase64,
  runChecks,
} from "./features.mjs";

const client = new Anthropic({ baseURL: BASE_URL.replace(/\/v1$/, ""), apiKey: "none" });
const model = MODEL;
const asking = { model, max_tokens: 200, temperature: 0, messages: CONTACT };

const schema = {
  type: "object",
  properties: {
    name: { type: "string" },
    email: { type: "string" },
    phone: { type: "string" },
  },
  required: ["name", "email", "phone"],
  additionalProperties: false,
};
const cardSchema = {
  type: "object",
  properties: {
    name: { type: "string" },
    house: { type: "string" },
    level: { type: "integer" },
    wand: {
      type: "object",
      properties: { wood: { type: "string" }, core: { type: "string" } },
      required: ["wood", "core"],
      additionalProperties: false,
    },
  },
  required: ["name", "house", "level", "wand"],
  additionalProperties: false,
};
const output_config = { format: { type: "json_schema", schema } };
const tools = [{ name: "save_contact", input_schema: schema, strict: true }];

function textOf(message) {
  return message.content
    .filter((block) => block.type === "text")
    .map((block) => block.text)
    .join("");
}

check("messages", "messages.create", async () => {
  const messages = [{ role: "user", content: "Hello" }];
  const message = await client.messages.create({ ...asking, messages, max_tokens: 60 });
  assert.ok(textOf(message));
  assert.equal(message.stop_reason, "end_turn");
});

check("messages", "output_config with a schema", async () => {
  const message = await client.messages.create({ ...asking, output_config });
  assert.equal(JSON.parse(textOf(message)).name, "Daniel Okafor");
});

check("messages", "count_tokens", async () => {
  const { input_tokens } = await client.messages.countTokens({ model, messages: CONTACT });
  assert.ok(input_tokens > 20);
});

check("messages streamed", "messages.stream", async () => {
  const stream = client.messages.stream({ ...asking, output_config });
  let text = "";
  stream.on("text", (piece) => (text += piece));
  const message = await stream.finalMessage();
  assert.equal(text, textOf(message));
  assert.equal(JSON.parse(text).name, "Daniel Okafor");
});

check("messages tools", "a call and its result", async () => {
  const tool_choice = { type: "tool", name: "save_contact" };
  const first = await client.messages.create({ ...asking, tools, tool_choice });
  assert.equal(first.stop_reason, "tool_use");
  const [call] = first.content.filter((block) => block.type === "tool_use");
  assert.equal(call.input.name, "Daniel Okafor");
  const second = await client.messages.create({
    ...asking,
    max_tokens: 60,
    tools,
    messages: [
      ...CONTACT,
      { role: "assistant", content: first.content },
      {
        role: "user",
        content: [{ type: "tool_result", tool_use_id: call.id, content: "saved" }],
      },
    ],
  });
  assert.equal(second.role, "assistant");
});

check("messages tools", "streamed arguments", async () => {
  const stream = client.messages.stream({ ...asking, tools, tool_choice: { type: "any" } });
  let json = "";
  stream.on("inputJson", (piece) => (json += piece));
  const message = await stream.finalMessage();
  const [call] = message.content.filter((block) => block.type === "tool_use");
  assert.deepEqual(JSON.parse(json), call.input);
});

check("images", "an image block, output_config with a schema", async () => {
  const source = { type: "base64", media_type: "image/png", data: pictureBase64() };
  const content = [
    { type: "image", source },
    { type: "text", text: CARD_TEXT },
  ];
  const message = await client.messages.create({
    ...asking,
    messages: [{ role: "user", content }],
    output_config: { format: { type: "json_schema", schema: cardSchema } },
  });
  assert.deepEqual(JSON.parse(textOf(message)), CARD);
});

check("errors", "typed errors", async () => {
  await assert.rejects(
    client.messages.create({ ...asking, model: "other" }),
    Anthropic.NotFoundError,
  );
  await assert.rejects(
    client.messages.create({ ...asking, temperature: 9 }),
    Anthropic.BadRequestError,
  );
});

await runChecks();
