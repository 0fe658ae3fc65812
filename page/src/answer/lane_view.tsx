/** An answer: its cost, its tokens, the strip of forward passes, and its times. */

import { useSignal } from "@preact/signals";

import { goToPointer } from "../state";
import type { ServerError } from "../server/access";
import { Copy } from "../ui/copy";
import { milliseconds, plural } from "../ui/number";
import type { Lane } from "./lane";
import { Legend, OriginBar } from "./origins";
import { Passes } from "./passes";
import { INSPECTOR, TokenView } from "./token_view";
import "./lane.css";

export function LaneView({ lane, id, title, longest }: { lane: Lane; id: string; title: string; longest: number }) {
  const { counts } = lane.figures.value;
  return (
    <div class="lane" role="group" aria-label={title}>
      <Headline lane={lane} />
      <OriginBar counts={counts} />
      <Legend counts={counts} />
      <AnswerText lane={lane} id={id} title={title} hasTokens={Object.values(counts).some(Boolean)} />
      <Passes lane={lane} longest={longest} />
      <Times lane={lane} />
    </div>
  );
}

/** The main figure: the share of tokens that needed no forward pass of their own. */
function Headline({ lane }: { lane: Lane }) {
  const { tokens, passes } = lane.figures.value;
  const free = tokens > 0 ? Math.max(0, tokens - passes) : 0;
  return (
    <p class="headline">
      <strong data-free={tokens ? Math.round((100 * free) / tokens) : ""}>{tokens ? `${Math.round((100 * free) / tokens)} %` : "–"}</strong>
      <span>
        of tokens needed no pass of their own
        <small>
          {`${plural(tokens, "token")}, ${plural(passes, "pass", "passes")}`}
        </small>
      </span>
    </p>
  );
}

/** `hasTokens` depends on a signal, so that tokens that arrive after the text replace it. */
function AnswerText({ lane, id, title, hasTokens }: { lane: Lane; id: string; title: string; hasTokens: boolean }) {
  const plain = useSignal(false);
  return (
    <div class="answer-text">
      <div class="answer-tools">
        <State lane={lane} />
        <label class="check">
          <input type="checkbox" checked={plain.value} onChange={(event) => (plain.value = event.currentTarget.checked)} />
          plain text
        </label>
        <Copy text={lane.text.value} />
      </div>
      {plain.value || (!hasTokens && lane.text.value) ? (
        <pre class="tokens" tabIndex={0} role="region" aria-label={`${title}, plain text`}>
          {lane.text.value}
        </pre>
      ) : (
        <TokenView lane={lane} id={id} label={`${title}, token by token`} describedBy={INSPECTOR} />
      )}
      {lane.error.value && <Failure error={lane.error.value} />}
    </div>
  );
}

const STATES = {
  idle: "not run yet",
  waiting: "waiting …",
  streaming: "writing …",
  done: "complete",
  stopped: "stopped",
  failed: "failed",
} as const;

function State({ lane }: { lane: Lane }) {
  const phase = lane.phase.value;
  const cut = phase === "done" && lane.figures.value.finishReason === "length";
  return <span class={`state ${phase}`}>{cut ? "cut at max_tokens" : STATES[phase]}</span>;
}

/** An error, with the server's message. */
export function Failure({ error }: { error: ServerError }) {
  return (
    <div class="failure" role="alert">
      <p>{error.message}</p>
      {(error.param || error.code) && (
        <p class="quiet">
          {error.param && (
            <>
              field <code>{error.param}</code>
            </>
          )}
          {error.param && error.code && ", "}
          {error.code && <code>{error.code}</code>}
        </p>
      )}
      {typeof error.pointer === "string" && (
        <button type="button" class="small" onClick={() => goToPointer(error.pointer!)}>
          Show {error.pointer || "the root"} in the schema
        </button>
      )}
    </div>
  );
}

function Times({ lane }: { lane: Lane }) {
  const { firstToken, elapsed, tokens } = lane.figures.value;
  const seconds = elapsed / 1000;
  return (
    <dl class="times">
      <div>
        <dt>first token</dt>
        <dd>{milliseconds(firstToken)}</dd>
      </div>
      <div>
        <dt>tokens a second</dt>
        <dd>{tokens && seconds ? Math.round(tokens / seconds).toLocaleString("en") : "–"}</dd>
      </div>
      <div>
        <dt>total</dt>
        <dd>{lane.phase.value === "done" ? milliseconds(elapsed) : "–"}</dd>
      </div>
    </dl>
  );
}
