/** The request on screen as the body of `POST /v1/chat/completions`. */

import {
  confidenceWanted,
  constraintKind,
  maxTokens,
  model,
  pictures,
  promptText,
  schemaSpec,
  schemaText,
  seed,
  systemText,
  temperature,
} from "../state";

/** A part of a message. */
export type Part = { type: "image_url"; image_url: { url: string } } | { type: "text"; text: string };

export interface Message {
  role: "system" | "user";
  content: string | Part[];
}

/** Fields that determine the answer, shown in the code tab. Absent ones have server defaults. */
export interface RequestFields {
  model: string;
  messages: Message[];
  temperature: number;
  seed?: number;
  max_tokens?: number;
  response_format?: unknown;
  confidence?: true;
  spans?: true;
}

export function messages(): Message[] {
  const seen: Part[] = pictures.value.map(({ url }) => ({ type: "image_url", image_url: { url } }));
  const content = seen.length ? [...seen, { type: "text" as const, text: promptText.value }] : promptText.value;
  const user: Message = { role: "user", content };
  return systemText.value.trim() ? [{ role: "system", content: systemText.value }, user] : [user];
}

/** The text of a message, in which `spans` count characters. */
export function textOf({ content }: Message): string {
  if (typeof content === "string") return content;
  return content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
}

export function requestFields(): RequestFields {
  return {
    model: model.value,
    messages: messages(),
    temperature: temperature.value,
    ...(seed.value !== null && { seed: seed.value }),
    ...(maxTokens.value !== null && { max_tokens: maxTokens.value }),
    ...(schemaSpec.value && { response_format: schemaSpec.value }),
    ...(confidenceWanted.value && constraintKind.value !== "none" && { confidence: true as const, spans: true as const }),
  };
}

/** Body of a streamed request, with usage, origins and log-probabilities. `extra` has priority. */
export function streamBody(extra: Record<string, unknown> = {}): string {
  return written({
    ...requestFields(),
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true, origins: true },
    logprobs: true,
    top_logprobs: 5,
    ...extra,
  });
}

/**
 * `fields` as JSON, with the text of the schema from the editor: parsing and serializing it would
 * change numbers of more than 53 bits.
 */
export function written(fields: object, indent?: number): string {
  const spec = schemaSpec.value;
  if (spec?.type !== "json_schema") return JSON.stringify(fields, null, indent);
  const mark = `schema:${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
  const shell = JSON.stringify(
    { ...fields, response_format: { ...spec, json_schema: { ...spec.json_schema, schema: mark } } },
    null,
    indent,
  );
  return shell.replace(JSON.stringify(mark), () => schemaText.value);
}
