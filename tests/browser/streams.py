"""Answers written by a test: streams at a fixed rate, returned by the page's own ``fetch``."""

from __future__ import annotations

from typing import Final

from playwright.sync_api import Page

FEED: Final = """
(options) => {
  const ask = window.fetch;
  const encoder = new TextEncoder();
  const event = (value) => encoder.encode(`data: ${JSON.stringify(value)}\\n\\n`);
  const sources = ["sampled", "leapt", "drafted", "held"];
  const word = (index) => `word${index % 10} `;
  const text = (index) => ({ choices: [{ delta: { content: word(index) } }] });
  const origins = (index) => {
    const token = word(index);
    const source = sources[index % 4];
    const told = { token, bytes: [...encoder.encode(token)], source, logprob: -0.5 };
    const passes = Math.floor(index / 2) + 1;
    return {
      choices: [{ delta: {}, origins: { index, tokens: [told] } }],
      usage: {
        prompt_tokens: 9,
        completion_tokens: index + 1,
        completion_tokens_details: { forward_passes: passes },
      },
    };
  };
  const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
  const frame = () => new Promise(requestAnimationFrame);
  const stream = async (controller) => {
    const began = performance.now();
    for (let sent = 0; sent < options.tokens; ) {
      const seconds = (performance.now() - began) / 1000;
      const due = options.atOnce + Math.ceil(seconds * options.rate);
      for (; sent < Math.min(due, options.tokens); sent++) {
        controller.enqueue(event(text(sent)));
        for (let number = 0; number < options.frames; number++) await frame();
        controller.enqueue(event(origins(sent)));
      }
      if (sent < options.tokens) await wait(1);
    }
    controller.enqueue(event({ choices: [{ delta: {}, finish_reason: "stop" }] }));
    controller.enqueue(encoder.encode("data: [DONE]\\n\\n"));
    controller.close();
  };
  window.fetch = (...request) => {
    if (!String(request[0]).endsWith("/v1/chat/completions")) return ask(...request);
    const headers = { "content-type": "text/event-stream" };
    const start = (controller) =>
      void stream(controller).catch((error) => controller.error(error));
    const body = new ReadableStream({ start });
    return Promise.resolve(new Response(body, { headers }));
  };
}
"""


def feed(page: Page, *, tokens: int, rate: float, at_once: int = 0, frames: int = 0) -> None:
    """Replaces later answers of the page by streams of ``tokens`` tokens: ``at_once`` of them at
    the start, then ``rate`` a second, each in an event. ``frames`` animation frames pass between
    the text of a token and its origin."""
    given = {"tokens": tokens, "rate": rate, "atOnce": at_once, "frames": frames}
    page.evaluate(FEED, given)
