/** Generates pydantic models for a schema. */

import { modelsOf, Unexpressed, type Field, type Model, type Models, type Shape } from "./shape";

export interface Written {
  /** The models without their imports; null if models cannot express the schema. */
  code: string | null;
  /** The reason for null; otherwise "". */
  unexpressed: string;
  imports: readonly string[];
  root: string;
  /** Why OpenAI's SDK would send another schema for the model; "" if it sends this one. */
  otherwise: string;
}

export const ALL_KEYS = "some keys are optional, and OpenAI's SDK requires all keys of a model";

/** Names that a field cannot have: Python keywords, and names that the class itself needs. */
const TAKEN = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda " +
    "nonlocal not or pass raise return try while with yield str int float bool list dict tuple Any Literal Annotated Field BaseModel ConfigDict " +
    "copy dict json schema schema_json construct validate parse_obj parse_raw parse_file from_orm update_forward_refs"
  ).split(" "),
);

export function pydanticModels(schema: unknown): Written {
  let found: Models;
  try {
    found = modelsOf(schema);
  } catch (error) {
    if (!(error instanceof Unexpressed)) throw error;
    return { code: null, unexpressed: error.message, imports: [], root: "", otherwise: "" };
  }
  const names = new Map(found.models.map(({ name }) => [name, TAKEN.has(name) ? `${name}Model` : name]));
  const writer = new Writer(names);
  const classes = found.models.map((model) => writer.model(model));
  return {
    code: classes.join("\n\n"),
    unexpressed: "",
    imports: writer.imports(),
    root: names.get(found.root)!,
    otherwise: found.hasOptional ? ALL_KEYS : "",
  };
}

class Writer {
  readonly #written = new Set<string>();
  readonly #pydantic = new Set(["BaseModel"]);
  readonly #typing = new Set<string>();
  readonly #names: ReadonlyMap<string, string>;

  constructor(names: ReadonlyMap<string, string>) {
    this.#names = names;
  }

  imports(): string[] {
    const from = (module: string, names: Set<string>) => (names.size ? [`from ${module} import ${[...names].sort().join(", ")}`] : []);
    return [...from("typing", this.#typing), ...from("pydantic", this.#pydantic)];
  }

  model(model: Model): string {
    const lines: string[] = [];
    if (model.description) lines.push(`    ${docstring(model.description)}`, "");
    if (model.open) {
      this.#pydantic.add("ConfigDict");
      lines.push('    model_config = ConfigDict(extra="allow")', "");
    }
    const used = new Set<string>();
    lines.push(...model.fields.map((field) => `    ${this.#field(field, used)}`));
    this.#written.add(model.name);
    while (lines.at(-1) === "") lines.pop();
    return `class ${this.#names.get(model.name)}(BaseModel):\n${lines.join("\n") || "    pass"}\n`;
  }

  #field(field: Field, used: Set<string>): string {
    const name = this.#fieldName(field.key, used);
    const [type, own] = this.#type(field.shape, true);
    const options: string[] = [];
    const nullable = field.shape.kind === "union" && field.shape.of.some(({ kind }) => kind === "null");
    if (!field.required) options.push("default=None");
    if (name !== field.key) options.push(`alias=${python(field.key)}`);
    options.push(...own);
    if (field.description) options.push(`description=${python(field.description)}`);
    let whole = field.required || nullable || field.shape.kind === "any" ? type : `${type} | None`;
    if (this.#namesLater(field.shape)) whole = python(whole);
    if (options.length === 0) return `${name}: ${whole}`;
    if (options.length === 1 && options[0] === "default=None") return `${name}: ${whole} = None`;
    this.#pydantic.add("Field");
    return `${name}: ${whole} = Field(${options.join(", ")})`;
  }

  /** The type, and the arguments of its `Field`. Inside another type it becomes `Annotated`. */
  #type(shape: Shape, outermost = false): [string, string[]] {
    const [type, options] = this.#plain(shape);
    if (outermost || options.length === 0) return [type, options];
    this.#typing.add("Annotated");
    this.#pydantic.add("Field");
    return [`Annotated[${type}, Field(${options.join(", ")})]`, []];
  }

  #plain(shape: Shape): [string, string[]] {
    switch (shape.kind) {
      case "any":
        this.#typing.add("Any");
        return ["Any", []];
      case "null":
        return ["None", []];
      case "boolean":
        return ["bool", []];
      case "string": {
        const plain = shape.pattern === undefined || isPlainPattern(shape.pattern);
        const extra = plain ? shape.extra : { pattern: shape.pattern, ...shape.extra };
        return ["str", [...options({ min_length: shape.min, max_length: shape.max, pattern: plain ? shape.pattern : undefined }), ...extras(extra)]];
      }
      case "number": {
        const { min: ge, max: le, above: gt, below: lt, step } = shape;
        const safe = step === undefined || Number.isInteger(step);
        const bounds = options({ ge, le, gt, lt, multiple_of: safe ? step : undefined });
        return [shape.integer ? "int" : "float", [...bounds, ...extras(safe ? shape.extra : { multipleOf: step, ...shape.extra })]];
      }
      case "enum":
        this.#typing.add("Literal");
        return [`Literal[${shape.values.map(python).join(", ")}]`, extras(shape.extra)];
      case "array":
        return [`list[${this.#type(shape.items)[0]}]`, [...options({ min_length: shape.min, max_length: shape.max }), ...extras(shape.extra)]];
      case "tuple":
        return [`tuple[${shape.items.map((item) => this.#type(item)[0]).join(", ") || "()"}]`, []];
      case "map":
        return [`dict[str, ${this.#type(shape.values)[0]}]`, []];
      case "union":
        return [[...new Set(shape.of.map((member) => this.#type(member)[0]))].join(" | "), []];
      case "object":
        return [this.#names.get(shape.name)!, []];
    }
  }

  /** Whether the shape refers to a class that is defined further below. */
  #namesLater(shape: Shape): boolean {
    switch (shape.kind) {
      case "object":
        return !this.#written.has(shape.name);
      case "array":
        return this.#namesLater(shape.items);
      case "map":
        return this.#namesLater(shape.values);
      case "tuple":
        return shape.items.some((item) => this.#namesLater(item));
      case "union":
        return shape.of.some((member) => this.#namesLater(member));
      default:
        return false;
    }
  }

  #fieldName(key: string, used: Set<string>): string {
    let name = key.replace(/[^A-Za-z0-9_]/g, "_").replace(/^_+/, "");
    if (!/^[A-Za-z]/.test(name)) name = `field_${name}`;
    const isTaken = (wish: string) => TAKEN.has(wish) || wish.startsWith("model_") || used.has(wish) || [...this.#names.values()].includes(wish);
    while (isTaken(name)) name = name.startsWith("model_") ? `field_${name}` : `${name}_`;
    used.add(name);
    return name;
  }
}

/** Whether pydantic's Rust regex supports it: no look-around, no back-references. */
function isPlainPattern(pattern: string): boolean {
  return !/\(\?(?!:)|\\[1-9cukpPzZAGB]/.test(pattern);
}

function options(given: Record<string, unknown>): string[] {
  return Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${python(value)}`]));
}

function extras(extra: Readonly<Record<string, unknown>>): string[] {
  return Object.keys(extra).length ? [`json_schema_extra=${python(extra)}`] : [];
}

function docstring(text: string): string {
  const safe = text.replaceAll("\\", "\\\\").replaceAll('"""', '\\"\\"\\"');
  return `"""${safe.replace(/"$/, '\\"')}"""`;
}

/** A JSON value as a Python literal. */
export function python(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value)
      .map(([key, member]) => `${python(key)}: ${python(member)}`)
      .join(", ")}}`;
  }
  // JSON's escapes are valid in Python, except surrogate pairs; JSON.stringify writes none.
  return JSON.stringify(value).replace(/\x7f/g, "\\x7f");
}
