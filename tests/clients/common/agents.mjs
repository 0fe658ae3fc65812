// For the command lines of agents: how they are run, and what makes so small a model call a tool.

import { execFile } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BASE_URL } from "./features.mjs";

/** A folder of its own, for a home or for work. */
export const folder = () => mkdtempSync(join(tmpdir(), "leapjson-client-"));

/** What the command prints, whatever its status; nobody's settings and keys are in its environment. */
export function run(command, args, { env, cwd }) {
  return new Promise((resolve) => {
    const child = execFile(
      command,
      args,
      { env: { PATH: process.env.PATH, ...env }, cwd, timeout: 80_000, maxBuffer: 1 << 26 },
      (_, stdout, stderr) => {
        console.error(stderr);
        resolve(stdout);
      },
    );
    child.stdin.end();
  });
}

/**
 * Runs `use` with the origin of a proxy in front of the server. `change` is given the body of each
 * request and its number, and may change it: a small model calls a tool when it has to. `use`
 * returns; what was sent is kept in `sent`.
 */
export async function steered(change, use) {
  const sent = [];
  const proxy = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    let body = parts.length ? Buffer.concat(parts) : undefined;
    if (request.method === "POST") {
      const asked = JSON.parse(body);
      change(asked, sent.length);
      sent.push(asked);
      body = JSON.stringify(asked);
    }
    const { host, connection, "content-length": _, ...headers } = request.headers;
    try {
      const answer = await fetch(new URL(request.url, BASE_URL), {
        method: request.method,
        headers,
        body,
      });
      response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") });
      for await (const part of answer.body ?? []) response.write(part);
    } catch (error) {
      console.error(error);
      response.writeHead(502);
    }
    response.end();
  });
  await new Promise((ready) => proxy.listen(0, "127.0.0.1", ready));
  try {
    return await use(`http://127.0.0.1:${proxy.address().port}`, sent);
  } finally {
    proxy.close();
    proxy.closeAllConnections();
  }
}
