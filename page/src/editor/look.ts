/** The editor's theme: the page's own colours, light and dark. */

import { HighlightStyle } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

export const highlighting = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--code-name)" },
  { tag: tags.string, color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: [tags.punctuation, tags.separator, tags.brace, tags.squareBracket], color: "var(--quiet)" },
]);

export const look = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--surface)", height: "100%", fontSize: "13px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--text)", padding: "8px 0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--quiet)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--code-line)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--code-selection)",
  },
  ".cm-selectionMatch, &.cm-focused .cm-matchingBracket": { backgroundColor: "var(--code-match)", outline: "none" },
  ".cm-foldPlaceholder": { backgroundColor: "var(--sunken)", color: "var(--quiet)", border: "1px solid var(--line)" },
  ".cm-tooltip": {
    backgroundColor: "var(--surface)",
    color: "var(--text)",
    border: "1px solid var(--line)",
    borderRadius: "6px",
    boxShadow: "var(--shadow)",
    fontFamily: "var(--sans)",
    maxWidth: "min(26rem, 90vw)",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "2px 8px", lineHeight: "1.5" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionInfo": { padding: "6px 10px" },
  ".keyword-hint": { padding: "4px 10px" },
  ".cm-diagnostic": { padding: "6px 10px", borderLeftWidth: "4px" },
  ".cm-panels": { backgroundColor: "var(--sunken)", color: "var(--text)", borderColor: "var(--line)" },
  ".cm-panel input, .cm-panel button": { color: "var(--text)", background: "var(--surface)", border: "1px solid var(--line-strong)" },
});
