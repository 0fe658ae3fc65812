/** What each keyword of JSON Schema does, in a line: completion and hints say it. */

export interface Keyword {
  name: string;
  does: string;
  /** What is written behind the name; `|` is where the cursor goes. */
  value: string;
}

const keyword = (name: string, value: string, does: string): Keyword => ({ name, value, does });

export const KEYWORDS: readonly Keyword[] = [
  keyword("type", '"|"', "Which kind of value: string, number, integer, boolean, null, object or array."),
  keyword("properties", "{|}", "The object's members by name; answers have them in this order."),
  keyword("required", "[|]", "Names that every answer has."),
  keyword("additionalProperties", "false|", "Schema of members that are not named; false forbids them."),
  keyword("patternProperties", "{|}", "Schemas of members whose names match a regular expression."),
  keyword("propertyNames", "{|}", "Schema that each name is valid against."),
  keyword("minProperties", "|", "Least number of members."),
  keyword("maxProperties", "|", "Greatest number of members."),
  keyword("dependentRequired", "{|}", "Names that must be there if another is."),
  keyword("dependentSchemas", "{|}", "Schemas that hold for the object if a member is there."),
  keyword("items", "{|}", "Schema of the array's items (of those behind prefixItems)."),
  keyword("prefixItems", "[|]", "Schemas of the first items, one each: a tuple."),
  keyword("contains", "{|}", "Schema that one of the items is valid against."),
  keyword("minContains", "|", "Least number of items that contains asks for."),
  keyword("maxContains", "|", "Greatest number of items that contains asks for."),
  keyword("minItems", "|", "Least number of items."),
  keyword("maxItems", "|", "Greatest number of items."),
  keyword("uniqueItems", "true|", "No item comes twice."),
  keyword("enum", "[|]", "The values that there are: a finite choice."),
  keyword("const", "|", "The one value. It is written without asking the model."),
  keyword("minLength", "|", "Least number of characters."),
  keyword("maxLength", "|", "Greatest number of characters."),
  keyword("pattern", '"|"', "Regular expression that is found in the string; ^ and $ anchor it."),
  keyword("format", '"|"', "A well-known form: date-time, email, uuid, uri, ipv4 and others."),
  keyword("minimum", "|", "Least value."),
  keyword("maximum", "|", "Greatest value."),
  keyword("exclusiveMinimum", "|", "The value is greater than this."),
  keyword("exclusiveMaximum", "|", "The value is less than this."),
  keyword("multipleOf", "|", "The value is a whole number of these."),
  keyword("anyOf", "[|]", "Valid against one of these schemas, or several."),
  keyword("oneOf", "[|]", "Valid against exactly one of these schemas."),
  keyword("allOf", "[|]", "Valid against all of these schemas."),
  keyword("not", "{|}", "Not valid against this schema."),
  keyword("if", "{|}", "A condition; then and else follow from it."),
  keyword("then", "{|}", "Holds where if does."),
  keyword("else", "{|}", "Holds where if does not."),
  keyword("$ref", '"#/$defs/|"', "The schema at another place of this document."),
  keyword("$defs", "{|}", "Schemas that $ref leads to."),
  keyword("$schema", '"https://json-schema.org/draft/2020-12/schema"|', "Which draft of JSON Schema this is."),
  keyword("$id", '"|"', "The schema's own address."),
  keyword("$anchor", '"|"', "A name that $ref can lead to."),
  keyword("title", '"|"', "A name for people. The prompt may tell it to the model."),
  keyword("description", '"|"', "What the value means. The prompt may tell it to the model."),
  keyword("default", "|", "What is meant where the value is left out. Enforces nothing."),
  keyword("examples", "[|]", "Values to go by. Enforces nothing."),
  keyword("x-verbatim", "true|", "The string stands in the prompt, character for character."),
  keyword("x-choice", '"exact"|', "The value is drawn as a whole, by the probability of its text."),
];

export const DOES: ReadonlyMap<string, string> = new Map(KEYWORDS.map(({ name, does }) => [name, does]));

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

/** Keywords whose value has schemas by name, and those whose value is a list of schemas. */
const BY_NAME = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]);
const LISTS = new Set(["anyOf", "oneOf", "allOf", "prefixItems"]);
const SINGLE = new Set(["items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties"]);

/** Whether a schema stands at the end of `path`, from the root: a member may be called "properties", too. */
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
