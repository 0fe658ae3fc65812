/** Descriptions of the keywords of JSON Schema, for completion and hints. */

export interface Keyword {
  name: string;
  does: string;
  /** Text inserted after the name; `|` marks the position of the cursor. */
  value: string;
}

const keyword = (name: string, value: string, does: string): Keyword => ({ name, value, does });

export const KEYWORDS: readonly Keyword[] = [
  keyword("type", '"|"', "Type: string, number, integer, boolean, null, object or array."),
  keyword("properties", "{|}", "Members by name; answers have them in this order."),
  keyword("required", "[|]", "Names of the required members."),
  keyword("additionalProperties", "false|", "Schema of additional members; false forbids them."),
  keyword("patternProperties", "{|}", "Schemas of members by a regular expression on their names."),
  keyword("propertyNames", "{|}", "Schema of the member names."),
  keyword("minProperties", "|", "Minimum number of members."),
  keyword("maxProperties", "|", "Maximum number of members."),
  keyword("dependentRequired", "{|}", "Members that are required if another one is present."),
  keyword("dependentSchemas", "{|}", "Schemas that apply to the object if a member is present."),
  keyword("items", "{|}", "Schema of the items (after prefixItems)."),
  keyword("prefixItems", "[|]", "Schemas of the first items, one each: a tuple."),
  keyword("contains", "{|}", "Schema that at least one item must match."),
  keyword("minContains", "|", "Minimum number of items that match contains."),
  keyword("maxContains", "|", "Maximum number of items that match contains."),
  keyword("minItems", "|", "Minimum number of items."),
  keyword("maxItems", "|", "Maximum number of items."),
  keyword("uniqueItems", "true|", "All items differ."),
  keyword("enum", "[|]", "List of the allowed values."),
  keyword("const", "|", "The only allowed value; written without the model."),
  keyword("minLength", "|", "Minimum number of characters."),
  keyword("maxLength", "|", "Maximum number of characters."),
  keyword("pattern", '"|"', "Regular expression that matches anywhere in the string; ^ and $ anchor it."),
  keyword("format", '"|"', "Format: date-time, email, uuid, uri, ipv4 and others."),
  keyword("minimum", "|", "Minimum value."),
  keyword("maximum", "|", "Maximum value."),
  keyword("exclusiveMinimum", "|", "The value must be greater."),
  keyword("exclusiveMaximum", "|", "The value must be less."),
  keyword("multipleOf", "|", "The value must be a multiple of this number."),
  keyword("anyOf", "[|]", "At least one of these schemas must match."),
  keyword("oneOf", "[|]", "Exactly one of these schemas must match."),
  keyword("allOf", "[|]", "All of these schemas must match."),
  keyword("not", "{|}", "This schema must not match."),
  keyword("if", "{|}", "Condition for then and else."),
  keyword("then", "{|}", "Schema that applies if the condition matches."),
  keyword("else", "{|}", "Schema that applies if the condition does not match."),
  keyword("$ref", '"#/$defs/|"', "Reference to another schema of this document."),
  keyword("$defs", "{|}", "Definitions for $ref."),
  keyword("$schema", '"https://json-schema.org/draft/2020-12/schema"|', "Draft of JSON Schema."),
  keyword("$id", '"|"', "Base URI of the schema."),
  keyword("$anchor", '"|"', "Name for $ref."),
  keyword("title", '"|"', "Title; part of the prompt when the schema is."),
  keyword("description", '"|"', "Description; part of the prompt when the schema is."),
  keyword("default", "|", "Default value; not enforced."),
  keyword("examples", "[|]", "Example values; not enforced."),
  keyword("x-verbatim", "true|", "The string must be an exact quote from the prompt."),
  keyword("x-grammar", '{"syntax": "lark", "definition": "|"}', "The string must match a grammar: lark, gbnf or regex."),
  keyword("x-choice", '"exact"|', "The whole value is sampled by the probability of its text."),
];

export const DESCRIPTIONS: ReadonlyMap<string, string> = new Map(KEYWORDS.map(({ name, does }) => [name, does]));

export const TYPES = ["string", "number", "integer", "boolean", "null", "object", "array"];
export const FORMATS = [
  "date-time",
  "date",
  "time",
  "duration",
  "email",
  "idn-email",
  "hostname",
  "idn-hostname",
  "ipv4",
  "ipv6",
  "uri",
  "uri-reference",
  "iri",
  "iri-reference",
  "uri-template",
  "uuid",
  "json-pointer",
  "relative-json-pointer",
  "regex",
];

/** Keywords with schemas by name, with a list of schemas, and with one schema. */
const BY_NAME = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]);
const LISTS = new Set(["anyOf", "oneOf", "allOf", "prefixItems"]);
const SINGLE = new Set(["items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties"]);

/** Whether `path` from the root leads to a schema; a member may be called "properties", too. */
export function isSchemaAt(path: readonly string[]): boolean {
  let at = 0;
  while (at < path.length) {
    const step = path[at]!;
    if (SINGLE.has(step)) at += 1;
    else if (BY_NAME.has(step) || LISTS.has(step)) at += 2;
    else return false;
  }
  return at === path.length;
}
