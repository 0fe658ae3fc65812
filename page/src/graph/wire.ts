/** Types of `POST /v1/schemas` and of its walks: graph, report and walk of a schema. */

export type Kind = "start" | "byte" | "class" | "text" | "rule" | "fold";

/** An SVG element: its tag, its attributes, and its text or the elements in it. */
export type Element = [tag: string, attributes: Record<string, string | number>, inside: string | Element[]];

/** A branch point: several ways leave it, or the answer may end. `x`, `y`: centre, in pixels. */
export interface State {
  id: string;
  x: number;
  y: number;
  label: string;
  note: string;
  accepting: boolean;
  repeats: string;
  rule: number | null;
  pointer: string | null;
  svg: Element;
}

/** A choice, and the leap after it. */
export interface Way {
  id: string;
  source: string;
  /** Null: beyond the limit of the graph. */
  target: string | null;
  kind: Kind;
  choice: string;
  leap: string;
  pointer: string | null;
  /** For a fold: the pointer that opens it. */
  open: string | null;
}

/** A box with a line for each way from one state to another; `x` and `y` are its centre. */
export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
  source: string;
  target: string | null;
  ways: string[];
  /** Number of ways without a line. */
  more: number;
  svg: Element;
}

export interface Route {
  box: number;
  /** Into the box, from its source, or out of it, to its target. */
  end: "in" | "out";
  points: [number, number][];
  /** Whether it goes up, to an earlier state. */
  back: boolean;
  svg: Element;
}

export interface Graph {
  /** Whether the graph is complete: nothing is beyond the limit. */
  whole: boolean;
  width: number;
  height: number;
  forced_share: number;
  states: State[];
  ways: Way[];
  boxes: Box[];
  routes: Route[];
  /** Text for Graphviz. */
  dot: string;
}

export type Fate = "enforced" | "annotation" | "not enforced" | "no effect" | "refused";

export interface KeywordUse {
  keyword: string;
  /** JSON Pointer to the keyword. */
  pointer: string;
  fate: Fate;
  note: string;
}

export interface Explain {
  shortest: string;
  shortest_bytes: number;
  longest_bytes: number | null;
  longest_is_exact: boolean;
  shortest_forced_bytes: number;
  branch_points: number;
  ways: number;
  leaps: number;
  graph_forced_share: number;
  /** Whether no list was cut. */
  whole: boolean;
  keywords: KeywordUse[];
  relaxed: { pointer: string; keyword: string | null; reason: string }[];
}

/** A way that was taken. Offsets in characters (code points); `leap`: null before its leap begins. */
export interface Step {
  way: string;
  start: number;
  leap: number | null;
  end: number;
}

export interface Walk {
  /** The steps after the first `kept` ones of the continued walk. The last one may be unfinished. */
  steps: Step[];
  kept: number;
  /** The state that was reached last. */
  at: string;
  complete: boolean;
  /** Number of characters in the graph; a longer text leaves the graph there. */
  accepted: number;
  /** Sent with the next request, so that a longer text continues this walk. */
  state: string;
}
