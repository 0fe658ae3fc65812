/** From a value in an answer to its subschema. Both are given by JSON Pointers (RFC 6901). */

import { escaped, segmentsOf } from "../ui/pointer";

/** Maximum number of subschemas examined for one step, since `$ref` may be cyclic. */
const MAX_PLACES = 500;
const BRANCHES = ["allOf", "anyOf", "oneOf"];
const SINGLE = ["if", "then", "else"];

interface Place {
  pointer: string;
  schema: unknown;
}

/**
 * Pointer to the subschema of the value at `pointer` in an answer. Of several subschemas, one that
 * allows `value`, if given. Stops at the deepest subschema that exists.
 */
export function placeInSchema(schema: unknown, pointer: string, value?: unknown): string {
  let places: Place[] = [{ pointer: "", schema }];
  for (const step of segmentsOf(pointer)) {
    const next = expanded(places, schema).flatMap((place) => childPlaces(place, step));
    if (next.length === 0) break;
    places = next;
  }
  const takes = places.find(({ schema }) => value !== undefined && taken(schema, value));
  return (takes ?? places[0]!).pointer;
}

/** The places, their branches, and targets of `$ref`. */
function expanded(places: readonly Place[], root: unknown): Place[] {
  const found = [...places];
  const seen = new Set(found.map(({ pointer }) => pointer));
  for (let at = 0; at < found.length && found.length < MAX_PLACES; at++) {
    for (const place of relatedPlaces(found[at]!, root)) {
      if (seen.has(place.pointer)) continue;
      seen.add(place.pointer);
      found.push(place);
    }
  }
  return found;
}

function relatedPlaces(place: Place, root: unknown): Place[] {
  const found = [...BRANCHES.flatMap((keyword) => child(place, keyword).flatMap((list) => items(list))), ...SINGLE.flatMap((keyword) => child(place, keyword))];
  const reference = isObject(place.schema) ? place.schema["$ref"] : undefined;
  if (typeof reference === "string") found.push(...referenceTarget(reference, root));
  return found;
}

/** Target of a reference by JSON Pointer into the same document; other references are ignored. */
function referenceTarget(reference: string, root: unknown): Place[] {
  if (reference !== "#" && !reference.startsWith("#/")) return [];
  let place: Place = { pointer: "", schema: root };
  for (const step of segmentsOf(decoded(reference.slice(1)))) {
    const [next] = child(place, step);
    if (!next) return [];
    place = next;
  }
  return [place];
}

/** Subschemas of a schema for a member or an item of its value. */
function childPlaces(place: Place, step: string): Place[] {
  const named = child(place, "properties").flatMap((properties) => child(properties, step));
  const matching = child(place, "patternProperties").flatMap((patterns) => Object.keys(patterns.schema as object).flatMap((pattern) => (matches(pattern, step) ? child(patterns, pattern) : [])));
  if (named.length + matching.length > 0) return [...named, ...matching];
  const first = child(place, "prefixItems").flatMap((list) => child(list, step));
  if (first.length > 0) return first;
  const others = /^\d+$/.test(step) ? ["items", "additionalProperties"] : ["additionalProperties"];
  return others.flatMap((keyword) => child(place, keyword)).slice(0, 1);
}

function child({ pointer, schema }: Place, step: string): Place[] {
  if (typeof schema !== "object" || schema === null || !Object.hasOwn(schema, step)) return [];
  return [{ pointer: `${pointer}/${escaped(step)}`, schema: (schema as Record<string, unknown>)[step] }];
}

function items(place: Place): Place[] {
  return Array.isArray(place.schema) ? place.schema.flatMap((_, index) => child(place, String(index))) : [];
}

/** Whether `type`, `enum` and `const` allow a value that is not an object or array. */
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
