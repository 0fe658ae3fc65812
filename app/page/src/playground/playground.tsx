/** The first tab: a request on the left, its answer on the right. */

import { ConfidencePanel } from "../confidence/confidence";
import { ExplainPanel } from "../graph/explain";
import { GraphPanel } from "../graph/graph";

export function Playground() {
  return (
    <div class="playground">
      <div class="request" />
      <div class="answer">
        <GraphPanel />
        <ExplainPanel />
        <ConfidencePanel />
      </div>
    </div>
  );
}
