/** Details of the token under the pointer or selected by keyboard. */

import { useLayoutEffect, useRef } from "preact/hooks";

import { percent, visible } from "../ui/number";
import { MEANINGS, NAMES } from "./origins";
import { inspected, INSPECTOR } from "./token_view";

export function Inspector() {
  const box = useRef<HTMLDivElement>(null);
  const found = inspected.value;
  const token = found?.lane.tokens[found.index];
  useLayoutEffect(() => {
    const element = box.current;
    if (!element || !found || !token) return;
    const { width, height } = element.getBoundingClientRect();
    const left = Math.max(8, Math.min(found.box.left, document.documentElement.clientWidth - width - 8));
    const below = found.box.bottom + 6;
    const top = below + height > innerHeight && found.box.top > height + 12 ? found.box.top - height - 6 : below;
    // A translation, since a new position in the layout would count as a layout shift.
    element.style.translate = `${left}px ${top}px`;
  }, [found]);
  // The element always exists, so that screen readers know it before it has content.
  return (
    <div ref={box} id={INSPECTOR} role="tooltip" aria-live="polite" class={token ? "inspector shown" : "inspector"}>
      {found && token && (
        <>
          <p class="what">
            <code>{visible(token.text) || "part of a character"}</code>
            <span class={`token ${token.source}`}>{NAMES[token.source]}</span>
            <span class="quiet">
              token {found.index + 1} of {found.lane.tokens.length}
            </span>
          </p>
          <p class="quiet">{MEANINGS[token.source]}</p>
          {token.alternatives.length > 0 && (
            <table>
              <caption>Most likely tokens</caption>
              <tbody>
                {token.alternatives.map((alternative) => (
                  <tr key={alternative.token} class={alternative.token === token.text ? "chosen" : ""}>
                    <th scope="row">
                      <code>{visible(alternative.token)}</code>
                    </th>
                    <td class="bar">
                      <span style={{ width: `${100 * Math.exp(alternative.logprob)}%` }} />
                    </td>
                    <td class="share">{percent(alternative.logprob)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
          {token.logprob !== null && !token.alternatives.some((each) => each.token === token.text) && <p>Its own probability: {percent(token.logprob)}</p>}
          {token.logprob === null && token.alternatives.length === 0 && <p>Not sampled, so it has no probability.</p>}
        </>
      )}
    </div>
  );
}
