/** A JSON Schema as types of pydantic and Zod. Throws `Unexpressed` for other schemas. */

/** A keyword that models cannot express: the schema itself is used instead. */
export class Unexpressed extends Error {
  constructor(what: string, pointer: string) {
    super(`${what} at ${pointer || "the root"} has no place in a model`);
  }
}

export type Scalar = string | number | boolean | null;

/** Keywords that are passed on unchanged, since neither library supports them. */
export type Extra = Readonly<Record<string, unknown>>;

export type Shape =
  | { kind: "any" }
  | { kind: "null" }
  | { kind: "boolean" }
  | { kind: "string"; min?: number; max?: number; pattern?: string; extra: Extra }
  | { kind: "number"; integer: boolean; min?: number; max?: number; above?: number; below?: number; step?: number; extra: Extra }
  | { kind: "enum"; values: readonly Scalar[]; extra: Extra }
  | { kind: "array"; items: Shape; min?: number; max?: number; extra: Extra }
  | { kind: "tuple"; items: readonly Shape[] }
  | { kind: "map"; values: Shape }
  | { kind: "union"; of: readonly Shape[] }
  | { kind: "object"; name: string };

export interface Field {
  key: string;
  shape: Shape;
  required: boolean;
  description?: string;
}

/** An object that becomes a class. */
export interface Model {
  name: string;
  description?: string;
  fields: readonly Field[];
  /** Whether additional keys are allowed. */
  open: boolean;
}

/** All models of a schema. Each follows those that it refers to, except in cycles. */
export interface Models {
  models: readonly Model[];
  root: string;
  /** Whether some key is optional: OpenAI's SDKs require all keys. */
  hasOptional: boolean;
  /** A keyword that OpenAI's SDK for TypeScript refuses to send as a model; null: none. */
  refused: string | null;
}

type Schema = Readonly<Record<string, unknown>>;

const ANNOTATIONS = new Set(["title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs", "definitions", "deprecated", "readOnly", "writeOnly"]);
const TYPES = ["string", "number", "integer", "boolean", "null", "object", "array"];

/** Throws `Unexpressed`. */
export function modelsOf(schema: unknown): Models {
  const reader = new Reader(schema);
  const shape = reader.read(schema, "", "Answer");
  if (shape.kind !== "object") throw new Unexpressed("a value that is no object", "");
  const { models } = reader;
  const shapes = models.flatMap(({ fields }) => fields.map((field) => field.shape)).flatMap(withParts);
  return {
    models,
    root: shape.name,
    hasOptional: models.some(({ fields }) => fields.some(({ required }) => !required)),
    refused: models.some(({ open }) => open) ? "objects with other keys" : (shapes.map(refusal).find((found) => found !== null) ?? null),
  };
}

function withParts(shape: Shape): Shape[] {
  const parts = shape.kind === "array" ? [shape.items] : shape.kind === "map" ? [shape.values] : shape.kind === "tuple" ? shape.items : shape.kind === "union" ? shape.of : [];
  return [shape, ...parts.flatMap(withParts)];
}

function refusal(shape: Shape): string | null {
  if (shape.kind === "tuple") return "prefixItems";
  if (shape.kind === "map") return "additionalProperties";
  return shape.kind === "array" && "uniqueItems" in shape.extra ? "uniqueItems" : null;
}

class Reader {
  readonly models: Model[] = [];
  readonly #root: unknown;
  readonly #names = new Set<string>();
  readonly #references = new Map<string, Shape>();
  readonly #open = new Set<string>();

  constructor(root: unknown) {
    this.#root = root;
  }

  read(schema: unknown, pointer: string, name: string): Shape {
    if (schema === true) return { kind: "any" };
    if (!isObject(schema)) throw new Unexpressed("false", pointer);
    if (typeof schema["$ref"] === "string") return this.#reference(schema, pointer, name);
    if (Array.isArray(schema["allOf"]) && schema["allOf"].length === 1) {
      checkKeywords(schema, ["allOf"], pointer);
      return this.read(schema["allOf"][0], `${pointer}/allOf/0`, name);
    }
    for (const keyword of ["anyOf", "oneOf"]) if (keyword in schema) return this.#union(schema, keyword, pointer, name);
    if ("const" in schema) return choice(schema, [schema["const"]], "const", pointer);
    if (Array.isArray(schema["enum"])) return choice(schema, schema["enum"], "enum", pointer);
    const { type } = schema;
    if (Array.isArray(type)) return { kind: "union", of: type.map((each) => this.#typed(forType(schema, each), String(each), pointer, name)) };
    if (type === undefined) {
      if (Object.keys(schema).every((key) => ANNOTATIONS.has(key))) return { kind: "any" };
      if ("properties" in schema) return this.#typed(schema, "object", pointer, name);
      throw new Unexpressed("a schema without a type", pointer);
    }
    return this.#typed(schema, String(type), pointer, name);
  }

  #typed(schema: Schema, type: string, pointer: string, name: string): Shape {
    switch (type) {
      case "null":
      case "boolean":
        checkKeywords(schema, ["type"], pointer);
        return { kind: type };
      case "string":
        return stringShape(schema, pointer);
      case "integer":
      case "number":
        return numberShape(schema, type === "integer", pointer);
      case "array":
        return this.#array(schema, pointer, name);
      case "object":
        return this.#object(schema, pointer, name);
    }
    throw new Unexpressed(`the type ${JSON.stringify(type)}`, pointer);
  }

  #reference(schema: Schema, pointer: string, name: string): Shape {
    checkKeywords(schema, ["$ref"], pointer);
    const reference = schema["$ref"] as string;
    const known = this.#references.get(reference);
    if (known) return known;
    if (this.#open.has(reference)) throw new Unexpressed("a $ref to itself", pointer);
    const target = at(this.#root, reference);
    if (target === undefined) throw new Unexpressed(`the $ref ${JSON.stringify(reference)}`, pointer);
    this.#open.add(reference);
    const last = reference.split("/").pop()!;
    const shape = this.read(target, reference.slice(1), last === "#" ? name : pascal(last) || name);
    this.#references.set(reference, shape);
    return shape;
  }

  #union(schema: Schema, keyword: string, pointer: string, name: string): Shape {
    checkKeywords(schema, [keyword], pointer);
    const members = schema[keyword];
    if (!Array.isArray(members) || members.length === 0) throw new Unexpressed(keyword, pointer);
    const of = members.map((member, index) => this.read(member, `${pointer}/${keyword}/${index}`, members.length > 2 ? `${name}${index + 1}` : name));
    if (keyword === "oneOf" && !areDisjoint(of)) throw new Unexpressed("oneOf whose members may overlap", pointer);
    return of.length === 1 ? of[0]! : { kind: "union", of };
  }

  #array(schema: Schema, pointer: string, name: string): Shape {
    const extra = checkKeywords(schema, ["type", "items", "prefixItems", "minItems", "maxItems", "uniqueItems"], pointer);
    const [min, max] = [integerKeyword(schema, "minItems", pointer), integerKeyword(schema, "maxItems", pointer)];
    if (schema["prefixItems"] !== undefined) {
      const prefix = schema["prefixItems"] as unknown[];
      const closed = (schema["items"] === false || max === prefix.length) && min === prefix.length;
      if (!Array.isArray(prefix) || !closed || "uniqueItems" in schema) throw new Unexpressed("prefixItems of no fixed length", pointer);
      return { kind: "tuple", items: prefix.map((item, index) => this.read(item, `${pointer}/prefixItems/${index}`, `${name}${index + 1}`)) };
    }
    const items = this.read(schema["items"] ?? true, `${pointer}/items`, singular(name));
    return { kind: "array", items, ...given({ min, max }), extra: { ...extra, ...(schema["uniqueItems"] === true && { uniqueItems: true }) } };
  }

  #object(schema: Schema, pointer: string, wish: string): Shape {
    checkKeywords(schema, ["type", "properties", "required", "additionalProperties"], pointer);
    const others = schema["additionalProperties"];
    const properties = schema["properties"] ?? {};
    if (!isObject(properties)) throw new Unexpressed("properties", pointer);
    const keys = Object.keys(properties);
    const required = new Set(Array.isArray(schema["required"]) ? schema["required"].map(String) : []);
    if ([...required].some((key) => !(key in properties))) throw new Unexpressed("required names without properties", pointer);
    if (keys.length === 0 && (others === true || isObject(others))) return { kind: "map", values: this.read(others, `${pointer}/additionalProperties`, wish) };
    if (isObject(others) && Object.keys(others).length > 0) throw new Unexpressed("additionalProperties beside properties", pointer);
    // JSON.parse puts numeric keys first, so the classes would have another order.
    if (keys.some((key) => /^\d+$/.test(key))) throw new Unexpressed("a key that is a number", pointer);

    const name = this.#free(pascal(typeof schema["title"] === "string" ? schema["title"] : "") || wish);
    const itself: Shape = { kind: "object", name };
    const reference = pointer === "" ? "#" : `#${pointer}`;
    this.#references.set(reference, itself);
    const fields = keys.map((key): Field => {
      const property = properties[key];
      const shape = this.read(property, `${pointer}/properties/${escaped(key)}`, pascal(key) || `${name}Value`);
      return { key, shape, required: required.has(key), ...described(property) };
    });
    this.models.push({ name, ...described(schema), fields, open: others === true || isObject(others) });
    return itself;
  }

  #free(wish: string): string {
    let name = wish;
    for (let number = 2; this.#names.has(name); number++) name = `${wish}${number}`;
    this.#names.add(name);
    return name;
  }
}

function stringShape(schema: Schema, pointer: string): Shape {
  const extra = checkKeywords(schema, ["type", "minLength", "maxLength", "pattern", "format"], pointer);
  const { pattern, format } = schema;
  return {
    kind: "string",
    ...given({ min: integerKeyword(schema, "minLength", pointer), max: integerKeyword(schema, "maxLength", pointer) }),
    ...(typeof pattern === "string" && { pattern }),
    extra: { ...(typeof format === "string" && { format }), ...extra },
  };
}

function numberShape(schema: Schema, integer: boolean, pointer: string): Shape {
  const extra = checkKeywords(schema, ["type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"], pointer);
  const number = (keyword: string) => {
    const value = schema[keyword];
    if (value === undefined || (typeof value === "number" && exact(value))) return value;
    throw new Unexpressed(keyword, pointer);
  };
  const bounds = { min: number("minimum"), max: number("maximum"), above: number("exclusiveMinimum"), below: number("exclusiveMaximum"), step: number("multipleOf") };
  return { kind: "number", integer, ...given(bounds), extra };
}

/** Whether the number is exact: integers beyond 53 bits were rounded by JSON.parse. */
function exact(value: number): boolean {
  return !Number.isInteger(value) || Number.isSafeInteger(value);
}

function choice(schema: Schema, values: readonly unknown[], keyword: string, pointer: string): Shape {
  const extra = checkKeywords(schema, [keyword, "type"], pointer);
  const types = schema["type"] === undefined ? TYPES : [schema["type"]].flat();
  const left = values.filter((value) => types.includes(typeName(value)) || (typeName(value) === "integer" && types.includes("number")));
  if (left.length === 0 || !left.every((value): value is Scalar => value === null || ["string", "boolean"].includes(typeof value) || Number.isSafeInteger(value))) {
    throw new Unexpressed(`${keyword} of values that are no strings, integers or booleans`, pointer);
  }
  return { kind: "enum", values: left, extra };
}

/** Returns the `x-` keywords. Throws for others that are not in `keywords` or annotations. */
function checkKeywords(schema: Schema, keywords: readonly string[], pointer: string): Extra {
  const extra: Record<string, unknown> = {};
  for (const keyword of Object.keys(schema)) {
    if (keyword.startsWith("x-")) extra[keyword] = schema[keyword];
    else if (!keywords.includes(keyword) && !ANNOTATIONS.has(keyword)) throw new Unexpressed(keyword, pointer);
  }
  return extra;
}

/** `schema` without the keywords of types other than `type`. */
function forType(schema: Schema, type: unknown): Schema {
  const about: Record<string, readonly string[]> = {
    string: ["minLength", "maxLength", "pattern", "format"],
    number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
    integer: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
    array: ["items", "prefixItems", "minItems", "maxItems", "uniqueItems"],
    object: ["properties", "required", "additionalProperties"],
  };
  const others = new Set(Object.values(about).flat());
  const own = about[String(type)] ?? [];
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => own.includes(keyword) || !others.has(keyword)));
}

/** Whether the JSON types of these shapes are disjoint, so that a value matches at most one. */
function areDisjoint(shapes: readonly Shape[]): boolean {
  const kinds = shapes.flatMap((shape): string[] => {
    switch (shape.kind) {
      case "enum":
        return [...new Set(shape.values.map((value) => (typeof value === "number" ? "number" : typeName(value))))];
      case "map":
        return ["object"];
      case "tuple":
        return ["array"];
      case "any":
      case "union":
        return ["any", "any"];
      default:
        return [shape.kind];
    }
  });
  return new Set(kinds).size === kinds.length;
}

function typeName(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return Number.isInteger(value) ? "integer" : typeof value;
}

function integerKeyword(schema: Schema, keyword: string, pointer: string): number | undefined {
  const value = schema[keyword];
  if (value === undefined || Number.isSafeInteger(value)) return value as number | undefined;
  throw new Unexpressed(keyword, pointer);
}

function given<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never;
}

function described(schema: unknown): { description?: string } {
  return isObject(schema) && typeof schema["description"] === "string" ? { description: schema["description"] } : {};
}

function at(root: unknown, reference: string): unknown {
  if (!reference.startsWith("#") || (reference.length > 1 && reference[1] !== "/")) return undefined;
  let value = root;
  for (const segment of decodeURIComponent(reference).split("/").slice(1)) {
    const key = segment.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<string, unknown>)[key];
  }
  return value;
}

function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function escaped(key: string): string {
  return key.replaceAll("~", "~0").replaceAll("/", "~1");
}

export function pascal(name: string): string {
  const words = name.match(/[A-Za-z0-9]+/g) ?? [];
  const joined = words.map((word) => word[0]!.toUpperCase() + word.slice(1)).join("");
  return /^[A-Z]/.test(joined) ? joined : "";
}

function singular(name: string): string {
  return /[^s]s$/.test(name) ? name.slice(0, -1) : `${name}Item`;
}
