/** Completion and hints for JSON Schema in the editor. */

import { snippetCompletion, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { syntaxTree } from "@codemirror/language";
import type { EditorState } from "@codemirror/state";
import { hoverTooltip, type Tooltip } from "@codemirror/view";
import type { SyntaxNode } from "@lezer/common";

import { DESCRIPTIONS, FORMATS, isSchemaAt, KEYWORDS, TYPES } from "./keywords";
import { nameOf, pathAt } from "./pointers";

// Labels include the quotes, since they are compared with the typed text, which has them.
const keywords: readonly Completion[] = KEYWORDS.map(({ name, value, does }, order) =>
  snippetCompletion(`"${escaped(name)}": ${escaped(value).replace("|", "${}")}`, { label: `"${name}"`, displayLabel: name, info: does, type: "property", boost: -order }),
);

/** Completion source for CodeMirror. */
export function completeSchema(context: CompletionContext): CompletionResult | null {
  const word = context.matchBefore(/"?[\w$/#-]*/);
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const { state, pos } = context;
  const node = syntaxTree(state).resolveInner(pos, -1);
  const property = valueOf(node, word.from);
  if (property) return valuesFor(state, property, word.from, endOf(state, pos));
  if (!isNameExpected(state, node, word.from)) return null;
  // Inside a name, use the path of the object, without the incomplete name.
  const object = enclosing(node, "Object");
  if (!object || !isSchemaAt(pathAt(state, object.from + 1))) return null;
  return { from: word.from, to: endOf(state, pos), options: keywords, validFor: /^"?[\w$-]*$/ };
}

/** The description of a keyword, shown when the mouse hovers over it. */
export const keywordHints = hoverTooltip((view, position, side): Tooltip | null => {
  const node = syntaxTree(view.state).resolveInner(position, side);
  if (node.name !== "PropertyName" || !node.parent) return null;
  const does = DESCRIPTIONS.get(nameOf(view.state, node.parent));
  if (!does || !isSchemaAt(pathAt(view.state, node.from).slice(0, -1))) return null;
  return {
    pos: node.from,
    end: node.to,
    create() {
      const dom = document.createElement("div");
      dom.className = "keyword-hint";
      dom.textContent = does;
      return { dom };
    },
  };
});

function escaped(text: string): string {
  return text.replace(/[$#{}\\]/g, (sign) => (sign === "$" || sign === "#" ? sign : `\\${sign}`));
}

/** End of a completion: after the closing quote that the editor has inserted. */
function endOf(state: EditorState, position: number): number {
  return state.sliceDoc(position, position + 1) === '"' ? position + 1 : position;
}

function enclosing(node: SyntaxNode | null, name: string): SyntaxNode | null {
  while (node && node.name !== name) node = node.parent;
  return node;
}

/** The property whose value is being typed at `from`, directly or in a list. */
function valueOf(node: SyntaxNode, from: number): SyntaxNode | null {
  for (let at: SyntaxNode | null = node; at; at = at.parent) {
    if (at.name === "Object") return null;
    if (at.name === "Property") {
      const name = at.getChild("PropertyName");
      return name && name.to < from ? at : null;
    }
  }
  return null;
}

function isNameExpected(state: EditorState, node: SyntaxNode, from: number): boolean {
  if (!enclosing(node, "Object")) return false;
  const before = state.sliceDoc(Math.max(0, from - 200), from).trimEnd().at(-1);
  return before === "{" || before === ",";
}

function valuesFor(state: EditorState, property: SyntaxNode, from: number, to: number): CompletionResult | null {
  const path = pathAt(state, property.to);
  const name = nameOf(state, property);
  if (!isSchemaAt(path.slice(0, path.lastIndexOf(name)))) return null;
  const texts =
    name === "type" ? TYPES : name === "format" ? FORMATS : name === "$ref" ? definitions(state) : name === "required" ? siblings(state, property) : null;
  if (!texts) return null;
  const options = texts.map((text) => ({ label: JSON.stringify(text), type: "enum" }));
  return { from, to, options, validFor: /^"?[\w$/#-]*$/ };
}

function namesIn(state: EditorState, object: SyntaxNode | null | undefined): string[] {
  return (object?.getChildren("Property") ?? []).map((property) => nameOf(state, property));
}

function memberOf(state: EditorState, object: SyntaxNode | null | undefined, name: string): SyntaxNode | null {
  const found = object?.getChildren("Property").find((property) => nameOf(state, property) === name);
  return found?.getChild("Object") ?? null;
}

function definitions(state: EditorState): string[] {
  const root = syntaxTree(state).topNode.getChild("Object");
  return ["$defs", "definitions"].flatMap((keyword) => namesIn(state, memberOf(state, root, keyword)).map((name) => `#/${keyword}/${name}`));
}

function siblings(state: EditorState, property: SyntaxNode): string[] {
  return namesIn(state, memberOf(state, property.parent, "properties"));
}
