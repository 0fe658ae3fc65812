/** The schema editor: CodeMirror, with the server's errors and warnings marked in the text. */

import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { json, jsonParseLinter } from "@codemirror/lang-json";
import { bracketMatching, foldGutter, foldKeymap, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { forceLinting, linter, lintGutter, lintKeymap, type Diagnostic } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState, StateEffect, type Extension } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { onGoToPointer, schemaProblems, schemaText } from "../state";
import { formatted } from "./format";
import { completeSchema, keywordHints } from "./completion";
import { rangeOf } from "./pointers";
import { highlighting, look } from "./look";

export function SchemaEditor() {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // In a shadow tree CodeMirror's styles are adopted style sheets, which the page's policy allows; in the
    // document itself they would be an inline <style>.
    const root = place.current!.shadowRoot ?? place.current!.attachShadow({ mode: "open" });
    const view = new EditorView({ parent: root, root, state: stateOf(schemaText.peek()) });
    const undo = [
      effect(() => follow(view, schemaText.value)),
      effect(() => {
        void schemaProblems.value;
        view.dispatch({ effects: problemsChanged.of(null) });
        forceLinting(view);
      }),
    ];
    onGoToPointer((pointer) => goTo(view, pointer));
    return () => {
      onGoToPointer(null);
      undo.forEach((each) => each());
      view.destroy();
    };
  }, []);
  return <div class="editor" ref={place} />;
}

function stateOf(text: string): EditorState {
  return EditorState.create({ doc: text, extensions: extensions() });
}

function extensions(): Extension {
  return [
    lineNumbers(),
    highlightActiveLineGutter(),
    foldGutter(),
    lintGutter(),
    history(),
    drawSelection(),
    indentOnInput(),
    bracketMatching(),
    closeBrackets(),
    autocompletion({ override: [completeSchema], icons: false }),
    highlightActiveLine(),
    highlightSelectionMatches(),
    keywordHints,
    json(),
    linter(diagnose, { delay: 300, needsRefresh: (update) => update.transactions.some(({ effects }) => effects.some((effect) => effect.is(problemsChanged))) }),
    syntaxHighlighting(highlighting),
    look,
    EditorView.contentAttributes.of({ "aria-label": "JSON Schema", tabindex: "0" }),
    EditorView.lineWrapping,
    typeOver,
    EditorView.clipboardInputFilter.of(inLines),
    // Tab indents, as in every editor; Escape and then Tab leaves it (CodeMirror's own way out).
    keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap, ...lintKeymap, indentWithTab]),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) schemaText.value = update.state.doc.toString();
    }),
  ];
}

/** Replaces a selection by typed text. The browser itself would merge the lines and give them an
 * inline style, which the page's content security policy forbids and reports. */
const typeOver = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { from, to, empty } = view.state.selection.main;
    const text = event.data;
    if (event.inputType !== "insertText" || text === null || empty || view.composing) return false;
    const insert = () => view.state.update(view.state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
    const taken = view.state.facet(EditorView.inputHandler).some((handler) => handler(view, from, to, text, insert));
    if (!taken) view.dispatch(insert());
    return true;
  },
});

/** Maximum characters of a line that CodeMirror lays out without a noticeable pause. */
const LONG_LINE = 5000;

/** Formats a pasted schema with a long line: one of 100,000 characters takes seconds to lay out. */
function inLines(text: string): string {
  if (!text.split("\n").some((line) => line.length > LONG_LINE)) return text;
  try {
    return formatted(text);
  } catch {
    return text; // not JSON, or only a part of it
  }
}

/** Shows a text that was set elsewhere: by an example, a link or the formatter. */
function follow(view: EditorView, text: string): void {
  const { doc } = view.state;
  if (doc.length === text.length && doc.toString() === text) return;
  view.dispatch({ changes: { from: 0, to: doc.length, insert: text }, selection: { anchor: 0 } });
}

const syntaxErrors = jsonParseLinter();
/** Makes the linter run again when the problems have changed, but not the text. */
const problemsChanged = StateEffect.define<null>();

function diagnose(view: EditorView): Diagnostic[] {
  if (view.state.doc.length === 0) return [];
  const wrong = syntaxErrors(view);
  if (wrong.length > 0) return wrong;
  const { run, explain } = schemaProblems.peek();
  const seen = new Set<string>();
  return [...run, ...explain]
    .filter(({ pointer, severity }) => !seen.has(pointer + severity) && seen.add(pointer + severity))
    .map(({ pointer, message, severity }) => ({ ...firstLine(view, rangeOf(view.state, pointer)), message, severity }));
}

/** The first line of `range`, for the mark of a problem: a mark under a page shows no place. */
function firstLine(view: EditorView, range: { from: number; to: number } | null) {
  const { from, to } = range ?? { from: 0, to: view.state.doc.length };
  return { from, to: Math.min(to, view.state.doc.lineAt(from).to) };
}

function goTo(view: EditorView, pointer: string): void {
  const range = rangeOf(view.state, pointer);
  if (!range) return;
  view.dispatch({
    selection: { anchor: range.from, head: range.to },
    effects: EditorView.scrollIntoView(range.from, { y: "center" }),
  });
  view.dom.scrollIntoView({ block: "nearest" });
  view.focus();
}
