/** Generates Zod 4 schemas for a JSON Schema. */

import { ALL_KEYS, type Written } from "./pydantic";
import { modelsOf, Unexpressed, type Extra, type Field, type Model, type Models, type Shape } from "./shape";

export function zodModels(schema: unknown): Written {
  let found: Models;
  try {
    found = modelsOf(schema);
  } catch (error) {
    if (!(error instanceof Unexpressed)) throw error;
    return { code: null, unexpressed: error.message, imports: [], root: "", otherwise: "" };
  }
  const writer = new Writer();
  return {
    code: found.models.map((model) => writer.model(model)).join("\n"),
    unexpressed: "",
    imports: ['import { z } from "zod";'],
    root: nameFor(found.root),
    otherwise: found.hasOptional ? ALL_KEYS : found.refused ? `OpenAI's SDK takes no model with ${found.refused}` : "",
  };
}

/** The name of a schema's constant; avoids names that the program itself uses. */
function nameFor(name: string): string {
  return ["OpenAI", "Object", "Array", "String", "Number", "Boolean", "JSON", "RegExp"].includes(name) ? `${name}Model` : name;
}

class Writer {
  readonly #written = new Set<string>();

  model({ name, description, fields, open }: Model): string {
    const lines = fields.map((field) => `  ${this.#field(field)},\n`);
    this.#written.add(name);
    const meta = description === undefined ? "" : `.meta(${JSON.stringify({ description })})`;
    return `const ${nameFor(name)} = z.${open ? "looseObject" : "strictObject"}({\n${lines.join("")}})${meta};\n`;
  }

  #field(field: Field): string {
    let text = this.#text(field.shape, field.description);
    if (!field.required) text += ".optional()";
    const key = /^[A-Za-z_$][\w$]*$/.test(field.key) ? field.key : JSON.stringify(field.key);
    // A getter is evaluated later, when the schema that it refers to is defined.
    return this.#namesLater(field.shape) ? `get ${key}() { return ${text}; }` : `${key === "__proto__" ? '["__proto__"]' : key}: ${text}`;
  }

  #text(shape: Shape, description?: string): string {
    const extra: Extra = { ...("extra" in shape ? shape.extra : {}), ...(description !== undefined && { description }) };
    return this.#plain(shape) + (Object.keys(extra).length ? `.meta(${JSON.stringify(extra)})` : "");
  }

  #plain(shape: Shape): string {
    switch (shape.kind) {
      case "any":
        return "z.any()";
      case "null":
        return "z.null()";
      case "boolean":
        return "z.boolean()";
      case "string": {
        const pattern = shape.pattern === undefined ? "" : `.regex(new RegExp(${JSON.stringify(shape.pattern)}, "u"))`;
        return `z.string()${call("min", shape.min)}${call("max", shape.max)}${pattern}`;
      }
      case "number": {
        const bounds = call("min", shape.min) + call("max", shape.max) + call("gt", shape.above) + call("lt", shape.below) + call("multipleOf", shape.step);
        return `z.${shape.integer ? "int" : "number"}()${bounds}`;
      }
      case "enum":
        if (shape.values.every((value) => typeof value === "string") && shape.values.length > 1) return `z.enum(${JSON.stringify(shape.values)})`;
        return `z.literal(${JSON.stringify(shape.values.length === 1 ? shape.values[0] : shape.values)})`;
      case "array":
        return `z.array(${this.#text(shape.items)})${call("min", shape.min)}${call("max", shape.max)}`;
      case "tuple":
        return `z.tuple([${shape.items.map((item) => this.#text(item)).join(", ")}])`;
      case "map":
        return `z.record(z.string(), ${this.#text(shape.values)})`;
      case "union":
        return this.#union(shape.of);
      case "object":
        return nameFor(shape.name);
    }
  }

  #union(of: readonly Shape[]): string {
    const others = of.filter(({ kind }) => kind !== "null");
    if (others.length === 1 && of.length === 2) return `${this.#text(others[0]!)}.nullable()`;
    return `z.union([${of.map((member) => this.#text(member)).join(", ")}])`;
  }

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
}

function call(name: string, value: number | undefined): string {
  return value === undefined ? "" : `.${name}(${value})`;
}
