/** From JSON Pointers (RFC 6901) to positions in the text, and back. */

import { ensureSyntaxTree, syntaxTree } from "@codemirror/language";
import type { EditorState } from "@codemirror/state";
import type { SyntaxNode } from "@lezer/common";

import { segmentsOf } from "../ui/pointer";

/** Maximum milliseconds for parsing the rest of a long text, to find a position. */
const PARSE_TIMEOUT_MS = 100;
const VALUES = new Set(["Object", "Array", "String", "Number", "True", "False", "Null"]);

export interface Range {
  from: number;
  to: number;
}

/** Range of the value at `pointer`, or of its deepest existing parent. The range of a member
 * includes its name. Null if the text has no value. */
export function rangeOf(state: EditorState, pointer: string): Range | null {
  const tree = ensureSyntaxTree(state, state.doc.length, PARSE_TIMEOUT_MS) ?? syntaxTree(state);
  let node = valueIn(tree.topNode);
  if (!node) return null;
  let range: Range = node;
  for (const segment of segmentsOf(pointer.replace(/^#/, ""))) {
    const found: SyntaxNode | null = node.name === "Object" ? member(state, node, segment) : node.name === "Array" ? item(node, segment) : null;
    if (!found) break;
    range = found;
    const value: SyntaxNode | null = found.name === "Property" ? valueIn(found) : found;
    if (!value) break;
    node = value;
  }
  return { from: range.from, to: range.to };
}

/** Names and indices on the path from the root to the object or array around `position`. */
export function pathAt(state: EditorState, position: number): string[] {
  let node: SyntaxNode | null = syntaxTree(state).resolveInner(position, -1);
  const path: string[] = [];
  for (; node; node = node.parent) {
    const parent: SyntaxNode | null = node.parent;
    if (node.name === "Property") path.unshift(nameOf(state, node));
    else if (parent?.name === "Array" && VALUES.has(node.name)) path.unshift(String(indexIn(parent, node)));
  }
  return path;
}

/** The name of a property, unescaped. */
export function nameOf(state: EditorState, property: SyntaxNode): string {
  const name = property.getChild("PropertyName");
  return name ? unquoted(state.sliceDoc(name.from, name.to)) : "";
}

function unquoted(text: string): string {
  try {
    return JSON.parse(text);
  } catch {
    return text.replace(/^"|"$/g, "");
  }
}

function valueIn(node: SyntaxNode): SyntaxNode | null {
  let found: SyntaxNode | null = null;
  for (let child = node.firstChild; child; child = child.nextSibling) if (VALUES.has(child.name)) found = child;
  return found;
}

/** The last member with this name, which is the one that JSON parsers keep. */
function member(state: EditorState, object: SyntaxNode, name: string): SyntaxNode | null {
  let found: SyntaxNode | null = null;
  for (let child = object.firstChild; child; child = child.nextSibling) {
    if (child.name === "Property" && nameOf(state, child) === name) found = child;
  }
  return found;
}

function item(array: SyntaxNode, index: string): SyntaxNode | null {
  let at = 0;
  for (let child = array.firstChild; child; child = child.nextSibling) {
    if (VALUES.has(child.name) && String(at++) === index) return child;
  }
  return null;
}

function indexIn(array: SyntaxNode, node: SyntaxNode): number {
  let at = 0;
  for (let child = array.firstChild; child && child.from < node.from; child = child.nextSibling) if (VALUES.has(child.name)) at++;
  return at;
}
