/** The strip under an answer: its tokens above, the forward passes that they took below. */

import { useEffect, useRef } from "preact/hooks";

import { theme } from "../state";
import { plural } from "../ui/number";
import type { Lane } from "./lane";
import type { Source, Token } from "./tokens";

const TOKEN_HEIGHT = 20;
const PASS_TOP = 26;
const PASS_HEIGHT = 16;
/** Tokens that fill the strip: it is as long as the request's longest lane, so that lanes compare. */
const LEAST = 24;

export function Passes({ lane, longest }: { lane: Lane; longest: number }) {
  const place = useRef<HTMLCanvasElement>(null);
  const scale = useRef(longest);
  scale.current = longest;
  useEffect(() => {
    const canvas = place.current!;
    const draw = () => paint(canvas, lane, Math.max(scale.current, LEAST));
    const forget = lane.onPaint(draw);
    const size = new ResizeObserver(draw);
    size.observe(canvas);
    return () => {
      forget();
      size.disconnect();
    };
  }, [lane]);
  useEffect(() => paint(place.current!, lane, Math.max(longest, LEAST)), [longest, theme.value]);
  const { tokens, passes } = lane.figures.value;
  return (
    <div class="passes">
      <div class="passes-names" aria-hidden="true">
        <span>tokens</span>
        <span>passes</span>
      </div>
      <canvas ref={place} role="img" aria-label={`${plural(passes, "forward pass", "forward passes")} for ${plural(tokens, "token")}`} />
    </div>
  );
}

function paint(canvas: HTMLCanvasElement, lane: Lane, longest: number): void {
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = PASS_TOP + PASS_HEIGHT;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d")!;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const style = getComputedStyle(canvas);
  const colour = (name: string) => style.getPropertyValue(`--${name}`);
  const step = width / Math.max(longest, lane.tokens.length);
  paintTokens(pen, lane.tokens, step, colour);
  paintPasses(pen, lane, step, colour);
}

function paintTokens(pen: CanvasRenderingContext2D, tokens: readonly Token[], step: number, colour: (name: string) => string): void {
  const gap = step > 5 ? 1 : 0;
  tokens.forEach((token, index) => {
    const left = index * step;
    pen.fillStyle = colour(token.source === "sampled" ? "sampled" : `${token.source}-soft`);
    pen.fillRect(left, 0, step - gap, TOKEN_HEIGHT);
    if (token.source !== "sampled") hatch(pen, token.source, left, step - gap, colour(token.source));
  });
}

/** The same patterns as in the legend, drawn by hand: a canvas knows no style sheet. */
function hatch(pen: CanvasRenderingContext2D, source: Source, left: number, width: number, ink: string): void {
  pen.save();
  pen.beginPath();
  pen.rect(left, 0, width, TOKEN_HEIGHT);
  pen.clip();
  pen.strokeStyle = ink;
  pen.lineWidth = source === "held" ? 2 : 3;
  pen.beginPath();
  if (source === "drafted") {
    for (let x = -TOKEN_HEIGHT - (left % 7); x < width + TOKEN_HEIGHT; x += 7) {
      pen.moveTo(left + x, TOKEN_HEIGHT);
      pen.lineTo(left + x + TOKEN_HEIGHT, 0);
    }
  } else if (source === "held") {
    for (let x = 1; x < width; x += 5) {
      pen.moveTo(left + x, 0);
      pen.lineTo(left + x, TOKEN_HEIGHT);
    }
  } else {
    pen.lineWidth = 2;
    pen.rect(left, 0, width, TOKEN_HEIGHT);
  }
  pen.stroke();
  pen.restore();
}

/** A block where the model ran, and behind it a line over the tokens that came with it: ink is cost. */
function paintPasses(pen: CanvasRenderingContext2D, lane: Lane, step: number, colour: (name: string) => string): void {
  const block = colour("text");
  const line = colour("line-strong");
  const gap = step > 5 ? 1 : 0;
  let passes = 0;
  let tokens = 0;
  for (const mark of lane.passMarks) {
    const fresh = mark.passes - passes;
    const width = ((mark.tokens - tokens) * step) / Math.max(1, fresh);
    for (let each = 0; each < fresh; each++) {
      const left = tokens * step + each * width;
      pen.fillStyle = line;
      pen.fillRect(left, PASS_TOP + PASS_HEIGHT / 2 - 1, Math.max(0, width - gap), 2);
      pen.fillStyle = block;
      pen.fillRect(left, PASS_TOP, Math.max(1, Math.min(step, width) - gap), PASS_HEIGHT);
    }
    passes = mark.passes;
    tokens = mark.tokens;
  }
}
