/** The right side of the page: the answer, the second answer of a race, and tabs with details. */

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { ConfidencePanel } from "../confidence/confidence";
import { ExplainPanel } from "../graph/explain";
import { GraphPanel } from "../graph/graph";
import { mainLane, plainLane, racing } from "../request/actions";
import { answerConfidence, answerNumber } from "../state";
import { Tabs, TabPanel } from "../ui/tabs";
import { milliseconds, plural } from "../ui/number";
import { Inspector } from "./inspector";
import { LaneView } from "./lane_view";
import { Legend, OriginBar } from "./origins";
import { NO_COUNTS } from "./tokens";
import "./answer.css";

type Detail = "graph" | "explain" | "confidence";
export const detail = signal<Detail>("graph");

/** The tabs. A label has the number of values, since they arrive while another tab is open. */
function details(): { id: Detail; label: string }[] {
  const values = answerConfidence.value?.length;
  return [
    { id: "graph", label: "Graph" },
    { id: "explain", label: "Explain" },
    { id: "confidence", label: values ? `Confidence (${values})` : "Confidence" },
  ];
}

export function Answer() {
  const card = useRef<HTMLElement>(null);
  useEffect(() => {
    if (answerNumber.value > 0) bringIntoView(card.current!);
  }, [answerNumber.value]);
  return (
    <div class="answer-side">
      <section ref={card} class="card" aria-labelledby="answer-title">
        <h2 id="answer-title" class="visually-hidden">
          Answer
        </h2>
        {mainLane.phase.value === "idle" ? <Introduction /> : <Lanes />}
        <Announcer />
      </section>
      <section class="card details" aria-label="About this schema and answer">
        <Tabs label="About this schema and answer" prefix="detail" tabs={details()} chosen={detail} />
        <TabPanel prefix="detail" id="graph" chosen={detail}>
          <GraphPanel />
        </TabPanel>
        <TabPanel prefix="detail" id="explain" chosen={detail}>
          <ExplainPanel />
        </TabPanel>
        <TabPanel prefix="detail" id="confidence" chosen={detail}>
          <ConfidencePanel />
        </TabPanel>
      </section>
      <Inspector />
    </div>
  );
}

/** Scrolls to the answer after Run, if it is below the form. */
function bringIntoView(card: HTMLElement): void {
  const { top, bottom } = card.getBoundingClientRect();
  if (top < innerHeight / 2 && bottom > innerHeight / 4) return;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  card.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
}

/** Explanation of the colours, shown before the first answer. */
function Introduction() {
  return (
    <div class="explains">
      <p class="headline-words">
        Where the schema allows only one continuation, nothing is decoded. <em>Most of an answer needs no forward pass.</em>
      </p>
      <OriginBar counts={NO_COUNTS} />
      <Legend counts={NO_COUNTS} />
      <p class="quiet">
        Press <b>Run</b> to see which tokens the model had to draw, and <b>Race</b> to see the same answer drawn token by token beside it.
      </p>
    </div>
  );
}

function Lanes() {
  const longest = Math.max(mainLane.figures.value.tokens, racing.value ? plainLane.figures.value.tokens : 0);
  if (!racing.value) return <LaneView lane={mainLane} id="answer" title="Answer" longest={longest} />;
  return (
    <>
      <div class="lanes">
        <div>
          <h3>With leaps and drafts</h3>
          <LaneView lane={mainLane} id="answer" title="Answer with leaps and drafts" longest={longest} />
        </div>
        <div>
          <h3>Token by token</h3>
          <LaneView lane={plainLane} id="plain" title="Answer token by token" longest={longest} />
        </div>
      </div>
      <RaceResult />
    </>
  );
}

/** The result of a race, shown when both answers are complete. */
function RaceResult() {
  const over = mainLane.phase.value === "done" && plainLane.phase.value === "done";
  const [ours, plain] = [mainLane.figures.value, plainLane.figures.value];
  return (
    <div class="race-result">
      <p class="quiet">Same request and seed, both at once in one batch.</p>
      {over && (
        <p>
          <strong>{(plain.passes / Math.max(1, ours.passes)).toFixed(1)} times fewer passes:</strong> {plural(ours.passes, "pass", "passes")} and{" "}
          {milliseconds(ours.elapsed)} against {plural(plain.passes, "pass", "passes")} and {milliseconds(plain.elapsed)}.{" "}
          {mainLane.text.value === plainLane.text.value ? "Both texts are equal." : "The texts differ."}
        </p>
      )}
    </div>
  );
}

/** Announces the beginning and the end of an answer to screen readers, but not each token. */
function Announcer() {
  const phase = mainLane.phase.value;
  const { tokens, passes } = mainLane.figures.peek();
  const words = {
    idle: "",
    waiting: "The request was sent.",
    streaming: "The answer is streaming.",
    done: `The answer is complete: ${plural(tokens, "token")}, ${plural(passes, "forward pass", "forward passes")}.`,
    stopped: "Stopped.",
    failed: "", // the error itself is an alert
  }[phase];
  return (
    <p class="visually-hidden" role="status">
      {words}
    </p>
  );
}
