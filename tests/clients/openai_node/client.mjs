// The openai package for Node, with Zod.

import assert from "node:assert/strict";
import OpenAI from "openai";
import {
  zodFunction,
  zodResponseFormat,
  zodResponsesFunction,
  zodTextFormat,
} from "openai/helpers/zod";
import { z } from "zod";
import {
  BASE_URL,
  CARD,
  CARD_TEXT,
  CONTACT,
  CONTACT_TEXT,
  MODEL,
  REVIEW,
  UNSUPPORTED_SCHEMA,
  check,
  pictureUrl,
  runChecks,
} from "./features.mjs";
import { Card, Contact, Review } from "./types.mjs";

const client = new OpenAI({ baseURL: BASE_URL, apiKey: "none" });
const chat = client.chat.completions;
const model = MODEL;
const temperature = 0;

const contactFormat = zodResponseFormat(Contact, "contact");
const save = zodFunction({ name: "save_contact", parameters: Contact });
const rate = zodFunction({ name: "rate", parameters: Review });
const saveResponse = zodResponsesFunction({ name: "save_contact", parameters: Contact });

function firstCall(completion) {
  const { message, finish_reason } = completion.choices[0];
  assert.ok(message.tool_calls?.length, `no call; content ${message.content}`);
  assert.equal(finish_reason, "tool_calls");
  return message.tool_calls[0].function;
}

check("text", "chat.completions.create", async () => {
  const messages = [{ role: "user", content: "Hello" }];
  const completion = await chat.create({ model, messages, temperature });
  assert.ok(completion.choices[0].message.content);
  assert.equal(completion.choices[0].finish_reason, "stop");
});

check("json_object", "response_format json_object", async () => {
  const completion = await chat.create({
    model,
    messages: [{ role: "user", content: `${CONTACT_TEXT} Reply in JSON.` }],
    response_format: { type: "json_object" },
    temperature,
  });
  assert.equal(typeof JSON.parse(completion.choices[0].message.content), "object");
});

check("json_schema", "parse with zodResponseFormat", async () => {
  const response_format = contactFormat;
  const completion = await chat.parse({ model, messages: CONTACT, response_format, temperature });
  assert.equal(completion.choices[0].message.parsed.name, "Daniel Okafor");
});

check("json_schema", "z.int(), enum and boolean", async () => {
  const response_format = zodResponseFormat(Review, "review");
  const completion = await chat.parse({ model, messages: REVIEW, response_format, temperature });
  assert.equal(Review.parse(completion.choices[0].message.parsed).rating, 2);
});

check("json_schema", "nullable, arrays, unions and a recursive type", async () => {
  const Node = z.object({
    label: z.string().max(8),
    get children() {
      return z.array(Node).max(2);
    },
  });
  const Answer = z.object({
    note: z.string().max(8).nullable(),
    parts: z.array(z.union([z.string().max(8), z.number().int()])).max(3),
    tree: Node,
  });
  const completion = await chat.parse({
    model,
    messages: REVIEW,
    response_format: zodResponseFormat(Answer, "answer"),
    temperature,
    max_tokens: 300,
  });
  Answer.parse(completion.choices[0].message.parsed);
});

check("stream", "create({stream: true}), with usage", async () => {
  const body = { model, messages: CONTACT, response_format: contactFormat, temperature };
  let text = "";
  let usage;
  const stream = await chat.create({
    ...body,
    stream: true,
    stream_options: { include_usage: true },
  });
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  const whole = await chat.create(body);
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(usage.total_tokens, whole.usage.total_tokens);
});

check("stream", "stream_options.fields: each completed value, also with stream()", async () => {
  const body = { model, messages: CONTACT, response_format: contactFormat, temperature };
  const stream_options = { fields: true };
  const told = {};
  let text = "";
  for await (const chunk of await chat.create({ ...body, stream: true, stream_options })) {
    text += chunk.choices[0].delta.content ?? "";
    for (const { pointer, value } of chunk.choices[0].fields ?? []) told[pointer] = value;
  }
  const whole = JSON.parse(text);
  const members = Object.entries(whole).map(([name, value]) => [`/${name}`, value]);
  assert.deepEqual(told, { ...Object.fromEntries(members), "": whole });
  const completion = await chat.stream({ ...body, stream_options }).finalChatCompletion();
  assert.equal(completion.choices[0].message.content, text);
});

check("stream", "stream() with zodResponseFormat", async () => {
  const response_format = contactFormat;
  const stream = chat.stream({ model, messages: CONTACT, response_format, temperature });
  let text = "";
  stream.on("content.delta", ({ delta }) => {
    text += delta;
  });
  const completion = await stream.finalChatCompletion();
  Contact.parse(completion.choices[0].message.parsed);
  assert.equal(text, completion.choices[0].message.content);
});

check("tools", "zodFunction, required", async () => {
  const completion = await chat.parse({
    model,
    messages: CONTACT,
    tools: [save],
    tool_choice: "required",
    temperature,
  });
  Contact.parse(firstCall(completion).parsed_arguments);
});

check("tools", "zodFunction, by name", async () => {
  const completion = await chat.parse({
    model,
    messages: REVIEW,
    tools: [save, rate],
    tool_choice: { type: "function", function: { name: "rate" } },
    temperature,
  });
  const call = completion.choices[0].message.tool_calls[0].function;
  assert.equal(call.name, "rate");
  Review.parse(call.parsed_arguments);
});

check("tools", "auto: text or a valid call", async () => {
  const completion = await chat.parse({ model, messages: CONTACT, tools: [save], temperature });
  const { message } = completion.choices[0];
  if (message.tool_calls?.length) {
    Contact.parse(message.tool_calls[0].function.parsed_arguments);
    return "called";
  }
  assert.ok(message.content);
  return "the model answered in text";
});

check("several calls", "parallel_tool_calls: every call validates", async () => {
  const completion = await chat.parse({
    model,
    messages: CONTACT,
    tools: [save, rate],
    tool_choice: "required",
    parallel_tool_calls: true,
    n: 8,
    seed: 1,
    temperature: 1.3,
    max_tokens: 400,
  });
  const counts = completion.choices.map(({ message }) => message.tool_calls.length);
  for (const { message } of completion.choices) {
    for (const { function: call } of message.tool_calls) {
      (call.name === "rate" ? Review : Contact).parse(call.parsed_arguments);
    }
  }
  return `up to ${Math.max(...counts)}`;
});

check("tools streamed", "stream(): deltas and parsed_arguments", async () => {
  const stream = chat.stream({
    model,
    messages: CONTACT,
    tools: [save],
    tool_choice: "required",
    temperature,
  });
  let text = "";
  stream.on("tool_calls.function.arguments.delta", ({ index, arguments_delta }) => {
    if (index === 0) text += arguments_delta;
  });
  const call = firstCall(await stream.finalChatCompletion());
  assert.equal(text, call.arguments);
  Contact.parse(call.parsed_arguments);
});

function saving(saved) {
  return zodFunction({
    name: "save_contact",
    parameters: Contact,
    function: (contact) => {
      saved.push(Contact.parse(contact));
      return "saved";
    },
  });
}

check("tool loop", "runTools, one function by name", async () => {
  const saved = [];
  const runner = chat.runTools({
    model,
    messages: CONTACT,
    tools: [saving(saved)],
    tool_choice: { type: "function", function: { name: "save_contact" } },
    temperature,
  });
  await runner.done();
  assert.equal(saved.length, 1);
});

check("tool loop", "runTools, auto", async () => {
  const saved = [];
  const runner = chat.runTools(
    { model, messages: CONTACT, tools: [saving(saved)], temperature },
    { maxChatCompletions: 3 },
  );
  await runner.done();
  return `the model called ${saved.length} times`;
});

check("tool loop", "runTools, streamed", async () => {
  const saved = [];
  const runner = chat.runTools({
    model,
    messages: CONTACT,
    tools: [saving(saved)],
    tool_choice: { type: "function", function: { name: "save_contact" } },
    temperature,
    stream: true,
  });
  await runner.done();
  assert.equal(saved.length, 1);
});

check("completions", "completions.create, and streamed", async () => {
  const body = { model, prompt: "Hello", max_tokens: 12, temperature };
  const whole = await client.completions.create(body);
  let text = "";
  for await (const chunk of await client.completions.create({ ...body, stream: true })) {
    text += chunk.choices[0]?.text ?? "";
  }
  assert.equal(text, whole.choices[0].text);
});

check("responses", "responses.create", async () => {
  const response = await client.responses.create({ model, input: "Hello", temperature });
  assert.ok(response.output_text);
  assert.equal(response.status, "completed");
});

check("responses", "parse with zodTextFormat", async () => {
  const response = await client.responses.parse({
    model,
    input: CONTACT_TEXT,
    text: { format: zodTextFormat(Contact, "contact") },
    temperature,
  });
  assert.equal(Contact.parse(response.output_parsed).name, "Daniel Okafor");
});

check("responses streamed", "stream() with zodTextFormat", async () => {
  const stream = client.responses.stream({
    model,
    input: CONTACT_TEXT,
    text: { format: zodTextFormat(Contact, "contact") },
    temperature,
  });
  let text = "";
  stream.on("response.output_text.delta", ({ delta }) => {
    text += delta;
  });
  const response = await stream.finalResponse();
  Contact.parse(response.output_parsed);
  assert.equal(text, response.output_text);
});

check("responses tools", "zodResponsesFunction, required", async () => {
  const response = await client.responses.parse({
    model,
    input: CONTACT_TEXT,
    tools: [saveResponse],
    tool_choice: "required",
    temperature,
  });
  const [call] = response.output;
  assert.equal(call.type, "function_call");
  Contact.parse(call.parsed_arguments);
});

check("responses tools", "streamed arguments", async () => {
  const stream = client.responses.stream({
    model,
    input: CONTACT_TEXT,
    tools: [saveResponse],
    tool_choice: "required",
    temperature,
  });
  let text = "";
  stream.on("response.function_call_arguments.delta", ({ delta, output_index }) => {
    if (output_index === 0) text += delta;
  });
  const response = await stream.finalResponse();
  assert.equal(text, response.output[0].arguments);
  Contact.parse(JSON.parse(text));
});

const ADD = 'start: "add(" NUMBER ("," NUMBER)~1..3 ")"\nNUMBER: /[0-9]{1,2}/';
const SUM = /^add\([0-9]{1,2}(,[0-9]{1,2}){1,3}\)$/;

check("tools", "a custom tool's input is a text of its grammar", async () => {
  const format = { type: "grammar", grammar: { syntax: "lark", definition: ADD } };
  const completion = await chat.create({
    model,
    messages: CONTACT,
    tools: [{ type: "custom", custom: { name: "add", format } }],
    tool_choice: "required",
  });
  const [call] = completion.choices[0].message.tool_calls;
  assert.equal(call.type, "custom");
  assert.match(call.custom.input, SUM);
});

check("responses tools", "a custom tool's input, streamed", async () => {
  const stream = client.responses.stream({
    model,
    input: CONTACT_TEXT,
    tools: [
      {
        type: "custom",
        name: "add",
        format: { type: "grammar", syntax: "lark", definition: ADD },
      },
    ],
    tool_choice: "required",
  });
  let text = "";
  for await (const event of stream) {
    if (event.type === "response.custom_tool_call_input.delta" && event.output_index === 0) {
      text += event.delta;
    }
  }
  assert.match(text, SUM);
});

const seeing = () => [
  {
    role: "user",
    content: [
      { type: "text", text: CARD_TEXT },
      { type: "image_url", image_url: { url: pictureUrl(), detail: "high" } },
    ],
  },
];

check("images", "image_url, parse with zodResponseFormat", async () => {
  const response_format = zodResponseFormat(Card, "card");
  const completion = await chat.parse({ model, messages: seeing(), response_format, temperature });
  assert.deepEqual(completion.choices[0].message.parsed, CARD);
  assert.ok(completion.usage.prompt_tokens > 100);
});

check("images", "image_url, stream() with zodResponseFormat", async () => {
  const response_format = zodResponseFormat(Card, "card");
  const stream = chat.stream({ model, messages: seeing(), response_format, temperature });
  const completion = await stream.finalChatCompletion();
  assert.deepEqual(completion.choices[0].message.parsed, CARD);
});

check("images", "responses: input_image, parse with zodTextFormat", async () => {
  const content = [
    { type: "input_text", text: CARD_TEXT },
    { type: "input_image", image_url: pictureUrl(), detail: "auto" },
  ];
  const response = await client.responses.parse({
    model,
    input: [{ role: "user", content }],
    text: { format: zodTextFormat(Card, "card") },
    temperature,
  });
  assert.deepEqual(response.output_parsed, CARD);
});

check("models", "models.list and models.retrieve", async () => {
  const page = await client.models.list();
  assert.ok(page.data.some(({ id }) => id === MODEL));
  assert.equal((await client.models.retrieve(MODEL)).id, MODEL);
});

async function refused(kind, body) {
  let sent = 0;
  const counted = new OpenAI({
    baseURL: BASE_URL,
    apiKey: "none",
    fetch: (...request) => {
      sent += 1;
      return fetch(...request);
    },
  });
  try {
    await counted.chat.completions.create({ model, messages: CONTACT, ...body });
  } catch (error) {
    assert.ok(error instanceof kind, `${error}`);
    assert.equal(sent, 1, `sent ${sent} times`);
    return error;
  }
  throw new Error("accepted");
}

check("batches", "files.create, batches.create and retrieve, files.content", async () => {
  const response_format = zodResponseFormat(Review, "review");
  const body = { model, messages: REVIEW, temperature, response_format };
  const url = "/v1/chat/completions";
  const lines = ["r0", "r1", "r2"].map((custom_id) => ({ custom_id, method: "POST", url, body }));
  const data = Buffer.from(lines.map((line) => JSON.stringify(line)).join("\n"));
  const file = await client.files.create({
    file: await OpenAI.toFile(data, "in.jsonl"),
    purpose: "batch",
  });
  let batch = await client.batches.create({
    input_file_id: file.id,
    endpoint: url,
    completion_window: "24h",
  });
  while (["validating", "in_progress", "finalizing"].includes(batch.status)) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    batch = await client.batches.retrieve(batch.id);
  }
  assert.equal(batch.status, "completed");
  const answers = (await (await client.files.content(batch.output_file_id)).text())
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  assert.deepEqual(answers.map((each) => each.custom_id), ["r0", "r1", "r2"]);
  for (const each of answers) {
    Review.parse(JSON.parse(each.response.body.choices[0].message.content));
  }
  assert.ok((await client.files.delete(file.id)).deleted);
});

check("errors", "a schema that cannot be enforced is a 400, not retried", async () => {
  const json_schema = { name: "x", schema: UNSUPPORTED_SCHEMA, strict: true };
  const error = await refused(OpenAI.BadRequestError, {
    response_format: { type: "json_schema", json_schema },
  });
  assert.match(error.message, /uniqueItems/);
});

check("errors", "an unknown model is a 404, not retried", async () => {
  const error = await refused(OpenAI.NotFoundError, { model: "gpt-nothing" });
  assert.equal(error.code, "model_not_found");
});

await runChecks();
