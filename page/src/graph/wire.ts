/** A schema's graph, what is explained of it, and a walk, as `POST /v1/schemas` has them. */

export type Kind = "start" | "byte" | "class" | "text" | "rule" | "fold";

/** An SVG element: its tag, its attributes, and its text or the elements in it. */
export type Element = [tag: string, attributes: Record<string, string | number>, inside: string | Element[]];

/** A branch point: more than one way leads on, or the answer may end. Its centre, in pixels. */
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
  /** Of a fold: the pointer that opens it. */
  open: string | null;
}

/** The ways from one state to the same next one: its centre and size, and a line for each. */
export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
  source: string;
  target: string | null;
  ways: string[];
  /** Ways that have no line. */
  more: number;
  svg: Element;
}

export interface Route {
  box: number;
  /** From a state into the box, or out of it to the next one. */
  end: "in" | "out";
  points: [number, number][];
  /** It leads up, to what came before. */
  back: boolean;
  svg: Element;
}

export interface Graph {
  /** Whether nothing was left out for the limit. */
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
  /** To the keyword itself. */
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

/** Characters (code points) of a text: a way's choice from `start`, its leap from `leap` on; null: it said none yet. */
export interface Step {
  way: string;
  start: number;
  leap: number | null;
  end: number;
}

export interface Walk {
  /** Those that come after the first `kept` ones of the walk that `state` was of. The last one may not be finished. */
  steps: Step[];
  kept: number;
  /** The state that was reached last. */
  at: string;
  complete: boolean;
  /** Characters that the graph has; the text left it there if it has more. */
  accepted: number;
  /** For the next walk, of a text that goes on from this one. */
  state: string;
}
