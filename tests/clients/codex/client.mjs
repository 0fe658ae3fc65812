// Codex's command line, which needs no account for a server of one's own.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { folder, run, steered } from "./agents.mjs";
import { CONTACT_TEXT, MODEL, check, runChecks } from "./features.mjs";

const CODEX = fileURLToPath(new URL("node_modules/.bin/codex", import.meta.url));
const SERVER = fileURLToPath(new URL("weather_mcp.mjs", import.meta.url));
const CONTACT_SCHEMA = {
  type: "object",
  properties: { name: { type: "string" }, email: { type: "string" } },
  required: ["name", "email"],
  additionalProperties: false,
};
const SENTENCE = {
  format: { type: "json_schema", name: "said", schema: { type: "string", maxLength: 80 } },
};
// With them its prompt is longer than the demo model's context.
const LEFT_OUT = ["multi_agent", "goals", "shell_tool", "unified_exec", "view_image", "plugins"];

/** The events that `codex exec` prints. */
async function codex(origin, prompt, { args = [], tools = false, small = true }) {
  const home = folder();
  const instructions = join(home, "instructions.md");
  writeFileSync(instructions, "You are an assistant.");
  const settings = {
    model: MODEL,
    model_provider: "leapjson",
    approval_policy: "never",
    sandbox_mode: "danger-full-access",
    "model_providers.leapjson.name": "Leapjson",
    "model_providers.leapjson.base_url": `${origin}/v1`,
    "model_providers.leapjson.wire_api": "responses",
  };
  if (small) {
    settings.model_instructions_file = instructions;
    settings.web_search = "disabled";
    settings["skills.include_instructions"] = false;
    for (const feature of LEFT_OUT) settings[`features.${feature}`] = false;
  }
  if (tools) {
    settings["mcp_servers.wx.command"] = process.execPath;
    settings["mcp_servers.wx.args"] = [SERVER];
  }
  const flags = Object.entries(settings).flatMap(([name, value]) => [
    "-c",
    `${name}=${JSON.stringify(value)}`,
  ]);
  const all = ["exec", "--skip-git-repo-check", "--json", ...flags, ...args, prompt];
  const printed = await run(CODEX, all, { env: { HOME: home, CODEX_HOME: home }, cwd: folder() });
  return printed.split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
}

const said = (events) =>
  events.filter(({ item }) => item?.type === "agent_message").map(({ item }) => item.text);

check("responses streamed", "codex exec", async () => {
  await steered(
    // The model's own answer may be empty, or go on until the context is full.
    (body) => Object.assign(body, { tool_choice: "none", text: SENTENCE }),
    async (origin) => {
      const events = await codex(origin, "Hello", {});
      assert.ok(said(events).join(""));
      assert.ok(events.some(({ type }) => type === "turn.completed"));
    },
  );
});

check("responses streamed", "--output-schema", async () => {
  const file = join(folder(), "schema.json");
  writeFileSync(file, JSON.stringify(CONTACT_SCHEMA));
  await steered(
    (body) => (body.tool_choice = "none"),
    async (origin) => {
      const events = await codex(origin, CONTACT_TEXT, { args: ["--output-schema", file] });
      assert.deepEqual(Object.keys(JSON.parse(said(events).at(-1))), ["name", "email"]);
    },
  );
});

check("responses tools", "an MCP server's tool, which has a namespace, is called", async () => {
  await steered(
    (body, number) => {
      const one = { type: "function", name: "get_weather", namespace: "mcp__wx" };
      body.tool_choice = number === 0 ? one : "none";
    },
    async (origin, sent) => {
      const events = await codex(origin, "What is the weather like in Paris today?", { tools: true });
      const items = events.map(({ item }) => item).filter(Boolean);
      const call = items.find(({ type, status }) => type === "mcp_tool_call" && status === "completed");
      assert.equal(call.tool, "get_weather");
      assert.match(JSON.stringify(call.result), /Rain in /);
      const history = sent[1].input.find(({ type }) => type === "function_call");
      assert.equal(history.namespace, "mcp__wx");
    },
  );
});

check("errors", "a prompt that is too long is known for what it is", async () => {
  await steered(
    () => {},
    async (origin) => {
      const events = await codex(origin, "Hello", { small: false });
      const failed = events.find(({ type }) => type === "turn.failed");
      assert.match(failed.error.message, /context window/);
    },
  );
});

await runChecks();
