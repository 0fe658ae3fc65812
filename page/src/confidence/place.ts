/** From a place in an answer to the place in its schema that speaks of it. Both are JSON Pointers (RFC 6901). */

import { escaped, segmentsOf } from "../ui/pointer";

/** Subschemas that are looked at for one step: `$ref` may lead round in circles. */
const MOST = 500;
const BRANCHES = ["allOf", "anyOf", "oneOf"];
const SINGLE = ["if", "then", "else"];

interface Place {
  pointer: string;
  schema: unknown;
}

/**
 * Where `schema` describes the value at `pointer` of an answer: of several such places one that takes `value`, if
 * it is given. Goes as far as the schema says what stands there.
 */
export function placeInSchema(schema: unknown, pointer: string, value?: unknown): string {
  let places: Place[] = [{ pointer: "", schema }];
  for (const step of segmentsOf(pointer)) {
    const next = expanded(places, schema).flatMap((place) => stepped(place, step));
    if (next.length === 0) break;
    places = next;
  }
  const takes = places.find(({ schema }) => value !== undefined && taken(schema, value));
  return (takes ?? places[0]!).pointer;
}

/** The places and all that hold beside or in place of them: branches, and what `$ref` leads to. */
function expanded(places: readonly Place[], root: unknown): Place[] {
  const found = [...places];
  const seen = new Set(found.map(({ pointer }) => pointer));
  for (let at = 0; at < found.length && found.length < MOST; at++) {
    for (const place of besides(found[at]!, root)) {
      if (seen.has(place.pointer)) continue;
      seen.add(place.pointer);
      found.push(place);
    }
  }
  return found;
}

function besides(place: Place, root: unknown): Place[] {
  const found = [...BRANCHES.flatMap((keyword) => below(place, keyword).flatMap((list) => items(list))), ...SINGLE.flatMap((keyword) => below(place, keyword))];
  const reference = isObject(place.schema) ? place.schema["$ref"] : undefined;
  if (typeof reference === "string") found.push(...referred(reference, root));
  return found;
}

/** References into the same document by JSON Pointer; others lead nowhere here. */
function referred(reference: string, root: unknown): Place[] {
  if (reference !== "#" && !reference.startsWith("#/")) return [];
  let place: Place = { pointer: "", schema: root };
  for (const step of segmentsOf(decoded(reference.slice(1)))) {
    const [next] = below(place, step);
    if (!next) return [];
    place = next;
  }
  return [place];
}

/** What a schema says of a member or an item of its value. */
function stepped(place: Place, step: string): Place[] {
  const named = below(place, "properties").flatMap((properties) => below(properties, step));
  const matching = below(place, "patternProperties").flatMap((patterns) => Object.keys(patterns.schema as object).flatMap((pattern) => (matches(pattern, step) ? below(patterns, pattern) : [])));
  if (named.length + matching.length > 0) return [...named, ...matching];
  const first = below(place, "prefixItems").flatMap((list) => below(list, step));
  if (first.length > 0) return first;
  const others = /^\d+$/.test(step) ? ["items", "additionalProperties"] : ["additionalProperties"];
  return others.flatMap((keyword) => below(place, keyword)).slice(0, 1);
}

function below({ pointer, schema }: Place, step: string): Place[] {
  if (typeof schema !== "object" || schema === null || !Object.hasOwn(schema, step)) return [];
  return [{ pointer: `${pointer}/${escaped(step)}`, schema: (schema as Record<string, unknown>)[step] }];
}

function items(place: Place): Place[] {
  return Array.isArray(place.schema) ? place.schema.flatMap((_, index) => below(place, String(index))) : [];
}

/** Whether `type`, `enum` and `const` take a value that is no object or array. */
function taken(schema: unknown, value: unknown): boolean {
  if (!isObject(schema)) return schema === true;
  if (Object.hasOwn(schema, "const")) return schema["const"] === value;
  if (Array.isArray(schema["enum"])) return schema["enum"].includes(value);
  const types = [schema["type"] ?? []].flat();
  return types.length === 0 || types.some((type) => typesOf(value).includes(String(type)));
}

function typesOf(value: unknown): string[] {
  if (value === null) return ["null"];
  return typeof value === "number" ? ["number", Number.isInteger(value) ? "integer" : ""] : [typeof value];
}

function matches(pattern: string, name: string): boolean {
  try {
    return new RegExp(pattern, "u").test(name);
  } catch {
    return false;
  }
}

function decoded(fragment: string): string {
  try {
    return decodeURIComponent(fragment);
  } catch {
    return fragment;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
