// Reads schemas, as texts by name, from a file, and prints for each the programs that the page writes. Those of
// TypeScript are run as far as the schema that they send.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [schemasPath, folder] = process.argv.slice(2);
const page = process.cwd();
const { build } = createRequire(join(page, "package.json"))("esbuild");
const inside = join(page, "node_modules", ".written"); // where zod and openai are found from
rmSync(inside, { recursive: true, force: true });
mkdirSync(inside, { recursive: true });
await build({ entryPoints: [join(page, "src/code/snippets.ts")], bundle: true, format: "esm", outfile: join(folder, "snippets.mjs") });
const { curl, pythonProgram, typescriptProgram } = await import(pathToFileURL(join(folder, "snippets.mjs")).href);

const result = {};
for (const [name, text] of Object.entries(JSON.parse(readFileSync(schemasPath, "utf8")))) {
  const schema = JSON.parse(text);
  const response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
  const fields = { model: "m", messages: [{ role: "user", content: "It's \"x\"\\\n$(y) `z` é" }], temperature: 0, seed: 7, response_format };
  const screen = { url: "http://127.0.0.1:1/v1", withKey: false, fields, body: JSON.stringify(fields, null, 2), schema: { value: schema, text } };
  const typescript = typescriptProgram(screen);
  result[name] = { python: pythonProgram(screen), typescript, curl: curl(screen), sent: await sentBy(name, typescript.code) };
}
rmSync(inside, { recursive: true, force: true });
console.log(JSON.stringify(result));

/** The body of the program's request. */
async function sentBy(name, code) {
  const source = join(inside, `${name}.ts`);
  writeFileSync(source, code.replace("new OpenAI({", "new OpenAI({ maxRetries: 0, fetch: globalThis.catchBody,"));
  await build({ entryPoints: [source], bundle: true, format: "esm", platform: "node", outfile: join(inside, `${name}.mjs`), packages: "external" });
  let body = null;
  globalThis.catchBody = async (_address, init) => {
    body = JSON.parse(init.body);
    throw new Error("caught");
  };
  await import(pathToFileURL(join(inside, `${name}.mjs`)).href).catch((error) => {
    if (body === null) throw error;
  });
  return body;
}
