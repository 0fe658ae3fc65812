// Claude Code's command line, which needs no account for a server of one's own.

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { folder, run, steered } from "./agents.mjs";
import { CONTACT_TEXT, MODEL, check, runChecks } from "./features.mjs";

const CLAUDE = fileURLToPath(new URL("node_modules/.bin/claude", import.meta.url));
const SERVER = fileURLToPath(new URL("weather_mcp.mjs", import.meta.url));
const MCP = { mcpServers: { wx: { command: process.execPath, args: [SERVER] } } };
const SMALL = ["--tools", "", "--system-prompt", "Be brief."];
const CONTACT_SCHEMA = {
  type: "object",
  properties: { name: { type: "string" }, email: { type: "string" } },
  required: ["name", "email"],
  additionalProperties: false,
};
const SENTENCE = { format: { type: "json_schema", schema: { type: "string", maxLength: 80 } } };
const home = folder();

/** What `claude -p` says, as JSON. */
async function claude(origin, prompt, ...args) {
  const env = {
    HOME: home,
    ANTHROPIC_BASE_URL: origin,
    ANTHROPIC_API_KEY: "none",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    DISABLE_AUTOUPDATER: "1",
    DISABLE_TELEMETRY: "1",
  };
  const all = ["-p", prompt, "--model", MODEL, "--output-format", "json", ...args];
  return JSON.parse(await run(CLAUDE, all, { env, cwd: folder() }));
}

check("messages streamed", "claude -p", async () => {
  await steered(
    // The model's own answer may go on until the context is full.
    (body) => (body.output_config = SENTENCE),
    async (origin, sent) => {
      const said = await claude(origin, "What is the weather like in Paris today?", ...SMALL);
      assert.equal(said.is_error, false);
      assert.ok(said.result);
      assert.ok(sent[0].context_management, "its first request asks for context management");
    },
  );
});

check("messages tools", "an MCP server's tool is called, and its result sent back", async () => {
  const name = "mcp__wx__get_weather";
  await steered(
    (body, number) => {
      // Bounds on both answers: so small a model may go on until the context is full.
      if (number === 0) Object.assign(body, { tool_choice: { type: "tool", name }, max_tokens: 300 });
      else Object.assign(body, { tool_choice: { type: "none" }, output_config: SENTENCE });
    },
    async (origin, sent) => {
      const options = ["--mcp-config", JSON.stringify(MCP), "--strict-mcp-config"];
      const said = await claude(
        origin,
        "What is the weather like in Paris today?",
        ...SMALL,
        ...options,
        "--allowedTools",
        name,
      );
      assert.equal(said.is_error, false);
      const blocks = sent[1].messages.flatMap(({ content }) => content);
      const result = blocks.find(({ type }) => type === "tool_result");
      assert.match(JSON.stringify(result.content), /Rain in /);
    },
  );
});

check("messages tools", "--json-schema", async () => {
  await steered(
    (body) => (body.tool_choice = { type: "tool", name: "StructuredOutput" }),
    async (origin) => {
      const schema = ["--json-schema", JSON.stringify(CONTACT_SCHEMA)];
      const said = await claude(origin, CONTACT_TEXT, ...SMALL, ...schema);
      assert.equal(said.is_error, false);
      assert.deepEqual(Object.keys(said.structured_output), ["name", "email"]);
    },
  );
});

check("errors", "a prompt that is too long is known for what it is", async () => {
  await steered(
    () => {},
    async (origin) => {
      const said = await claude(origin, "Hello");
      assert.equal(said.terminal_reason, "prompt_too_long");
      assert.match(said.result, /Prompt is too long/);
    },
  );
});

await runChecks();
