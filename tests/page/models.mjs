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
const { curl, pythonProgram, typescriptProgram } = await source("code/snippets");
const { withMarks } = await source("code/pictures");

const result = {};
for (const [name, text] of Object.entries(JSON.parse(readFileSync(schemasPath, "utf8")))) {
  const schema = JSON.parse(text);
  const response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
  const fields = { model: "m", messages: [{ role: "user", content: "It's \"x\"\\\n$(y) `z` é" }], temperature: 0, seed: 7, response_format };
  const screen = { url: "http://127.0.0.1:1/v1", withKey: false, fields, body: JSON.stringify(fields, null, 2), files: [], schema: { value: schema, text } };
  const typescript = typescriptProgram(screen);
  result[name] = { python: pythonProgram(screen), typescript, curl: curl(screen), sent: await sentBy(name, typescript.code) };
}
result.pictures = await withPictures();
rmSync(inside, { recursive: true, force: true });
console.log(JSON.stringify(result));

/** Programs of a request with the pictures that lie in the folder. */
async function withPictures() {
  const pictures = ["a b.png", "it's.jpg"].map((name, index) => ({ name, url: `data:image/${["png", "jpeg"][index]};base64,AAAA` }));
  const content = [...pictures.map(({ url }) => ({ type: "image_url", image_url: { url } })), { type: "text", text: "What is it?" }];
  const { fields, files } = withMarks({ model: "m", messages: [{ role: "user", content }], temperature: 0 }, pictures);
  const screen = { url: "http://127.0.0.1:1/v1", withKey: false, fields, body: JSON.stringify(fields, null, 2), files, schema: null };
  const typescript = typescriptProgram(screen);
  process.chdir(folder);
  return { python: pythonProgram(screen), typescript, curl: curl(screen), sent: await sentBy("pictures", typescript.code) };
}

/** The module, in `src/`. */
async function source(name) {
  const outfile = join(folder, `${name.replaceAll("/", "-")}.mjs`);
  await build({ entryPoints: [join(page, `src/${name}.ts`)], bundle: true, format: "esm", outfile });
  return import(pathToFileURL(outfile).href);
}

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
