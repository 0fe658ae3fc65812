/** Generates programs for the current request. Pure functions from the page's state to text. */

import type { RequestFields } from "../request/body";
import { bodyFromFiles, calls, PYTHON_READER, TYPESCRIPT_READER, type PictureFile } from "./pictures";
import { python, pydanticModels, type Written } from "./pydantic";
import { zodModels } from "./zod";

export interface OnScreen {
  /** Address of the API, with /v1. */
  url: string;
  /** Whether the server requires a key; programs read it from the environment. */
  withKey: boolean;
  fields: RequestFields;
  /** The indented JSON body; numbers of the schema keep their digits. */
  body: string;
  /** Pictures with marks in `fields` and `body`. */
  files: readonly PictureFile[];
  /** The schema, if the constraint is one: parsed, and as text. */
  schema: { value: unknown; text: string } | null;
}

export interface Snippet {
  code: string;
  /** A remark for the user; "": none. */
  note: string;
}

const KEY = "LEAPJSON_KEY";

export function curl({ url, withKey, body, files }: OnScreen): Snippet {
  const key = withKey ? ` \\\n  -H "authorization: Bearer $${KEY}"` : "";
  const call = `curl ${url}/chat/completions \\\n  -H 'content-type: application/json'${key} \\\n  -d @-`;
  return { code: files.length ? `${bodyFromFiles(body, files)} | ${call}\n` : `${call} <<'END'\n${body}\nEND\n`, note: "" };
}

// --- Python ---

export function pythonProgram(screen: OnScreen): Snippet {
  const models = screen.schema && pydanticModels(screen.schema.value);
  const whole = models !== null && models.code !== null && !models.otherwise;
  const files = screen.files;
  const imports = [...(files.length ? ["import base64"] : []), ...(withJson(models) ? ["import json"] : []), ...(screen.withKey ? ["import os"] : []), ...(files.length ? ["import pathlib"] : []), "", "import openai", ...(models?.imports.filter(isPydantic) ?? [])];
  const typing = models?.imports.filter((line) => !isPydantic(line)) ?? [];
  const head = [...imports.slice(0, imports.indexOf("")), ...typing].filter(Boolean);
  const lines = [...head, ...(head.length ? [""] : []), ...imports.slice(imports.indexOf("") + 1), ""];
  if (models?.code) lines.push("", models.code, "");
  if (files.length) lines.push("", PYTHON_READER, "");
  if (screen.schema && !whole) lines.push(`schema = json.loads(\n    ${pythonText(screen.schema.text)}\n)`, "");
  const key = screen.withKey ? `os.environ["${KEY}"]` : '"none"';
  lines.push(`client = openai.OpenAI(base_url=${python(screen.url)}, api_key=${key})`);
  lines.push(`completion = client.chat.completions.${whole ? "parse" : "create"}(`);
  for (const argument of pythonArguments(screen, whole ? models.root : null)) lines.push(`    ${argument},`);
  lines.push(")", ...pythonEnd(models, whole, screen.fields.confidence === true));
  return { code: calls(`${lines.join("\n")}\n`, "picture", files), note: noteOn(models, "pydantic model") };
}

const isPydantic = (line: string) => line.startsWith("from pydantic");
const withJson = (models: Written | null) => models !== null && (models.code === null || models.otherwise !== "");

function pythonArguments({ fields, schema }: OnScreen, root: string | null): string[] {
  const { response_format, confidence, spans, messages, ...rest } = fields;
  const plain = Object.entries(rest).map(([name, value]) => `${name}=${python(value)}`);
  const said = `messages=[\n${messages.map((message) => `        ${python(message)},\n`).join("")}    ]`;
  const format = root ?? (schema ? pythonFormat(response_format) : response_format && python(response_format));
  const extra = { ...(confidence && { confidence }), ...(spans && { spans }) };
  return [...plain, said, ...(format ? [`response_format=${format}`] : []), ...(Object.keys(extra).length ? [`extra_body=${python(extra)}`] : [])];
}

function pythonFormat(format: unknown): string {
  const { name, strict } = (format as { json_schema: { name: string; strict: boolean } }).json_schema;
  return `{\n        "type": "json_schema",\n        "json_schema": {"name": ${python(name)}, "strict": ${python(strict)}, "schema": schema},\n    }`;
}

function pythonEnd(models: Written | null, whole: boolean, confidence: boolean): string[] {
  const content = "completion.choices[0].message.content";
  const shown = whole
    ? "completion.choices[0].message.parsed"
    : models?.code
      ? `${models.root}.model_validate_json(${content})`
      : models
        ? `json.loads(${content})`
        : content;
  return [`print(${shown})`, ...(confidence ? ["print(completion.choices[0].confidence)"] : [])];
}

function pythonText(text: string): string {
  return text.includes('"""') || text.endsWith('"') || text.endsWith("\\") ? python(text) : `r"""${text}"""`;
}

// --- TypeScript ---

export function typescriptProgram(screen: OnScreen): Snippet {
  const models = screen.schema && zodModels(screen.schema.value);
  const whole = models !== null && models.code !== null && !models.otherwise;
  const files = screen.files;
  const lines = [...(files.length ? ['import { readFileSync } from "node:fs";', ""] : []), 'import OpenAI from "openai";', ...(whole ? ['import { zodResponseFormat } from "openai/helpers/zod";'] : []), ...(models?.imports ?? []), ""];
  if (models?.code) lines.push(models.code);
  if (files.length) lines.push(TYPESCRIPT_READER, "");
  if (screen.schema && !whole) lines.push(`const schema = ${typescriptValue(screen.schema.text)};`, "");
  const key = screen.withKey ? `process.env["${KEY}"]` : '"none"';
  lines.push(`const client = new OpenAI({ baseURL: ${JSON.stringify(screen.url)}, apiKey: ${key} });`);
  lines.push(`const completion = await client.chat.completions.${whole ? "parse" : "create"}({`);
  for (const field of typescriptFields(screen, whole ? models.root : null)) lines.push(`  ${field},`);
  lines.push("});", ...typescriptEnd(models, whole, screen.fields.confidence === true));
  const rounds = screen.schema && /\d{16}/.test(screen.schema.text) ? "JavaScript rounds integers above 53 bits." : "";
  return { code: calls(`${lines.join("\n")}\n`, "picture", files), note: [noteOn(models, "Zod schema"), rounds].filter(Boolean).join(" ") };
}

function typescriptFields({ fields, schema }: OnScreen, root: string | null): string[] {
  const { response_format, confidence, spans, messages, ...rest } = fields;
  const plain = Object.entries(rest).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
  const said = `messages: [\n${messages.map(({ role, content }) => `    { role: ${JSON.stringify(role)}, content: ${JSON.stringify(content)} },\n`).join("")}  ]`;
  const own = { ...(confidence && { confidence }), ...(spans && { spans }), ...(!schema && response_format ? { response_format } : {}) };
  // Fields that OpenAI's types do not have are spread in.
  const extra = Object.keys(own).length ? [`...(${JSON.stringify(own)} as object)`] : [];
  return [...plain, said, ...(schema ? [`response_format: ${typescriptFormat(response_format, root)}`] : []), ...extra];
}

function typescriptFormat(format: unknown, root: string | null): string {
  const { name, strict } = (format as { json_schema: { name: string; strict: boolean } }).json_schema;
  if (root) return `zodResponseFormat(${root}, ${JSON.stringify(name)})`;
  return `{ type: "json_schema", json_schema: { name: ${JSON.stringify(name)}, strict: ${strict}, schema } }`;
}

function typescriptEnd(models: Written | null, whole: boolean, confidence: boolean): string[] {
  const content = "completion.choices[0]?.message.content";
  const shown = whole
    ? "completion.choices[0]?.message.parsed"
    : models?.code
      ? `${models.root}.parse(JSON.parse(${content} ?? ""))`
      : models
        ? `JSON.parse(${content} ?? "")`
        : content;
  return [`console.log(${shown});`, ...(confidence ? ['console.log((completion.choices[0] as { confidence?: unknown } | undefined)?.confidence);'] : [])];
}

/** JSON is valid TypeScript, except for the key `__proto__`; large numbers are rounded. */
function typescriptValue(text: string): string {
  return text.includes("__proto__") ? `JSON.parse(${JSON.stringify(text)})` : text;
}

function noteOn(models: Written | null, name: string): string {
  if (models === null) return "";
  if (models.code === null) return `The schema itself is sent: ${models.unexpressed}.`;
  return models.otherwise ? `The schema itself is sent, and the ${name} reads the answer: ${models.otherwise}.` : "";
}
