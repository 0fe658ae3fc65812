/** The strip under an answer: its tokens above, and their forward passes below. */

import { useEffect, useRef } from "preact/hooks";

import { theme } from "../state";
import { plural } from "../ui/number";
import type { Lane } from "./lane";
import { SOURCES, type Source, type Token } from "./tokens";

const TOKEN_HEIGHT = 20;
const PASS_TOP = 26;
const PASS_HEIGHT = 16;
/** Minimum length of the strip in tokens. All lanes have the length of the longest one. */
const MIN_LENGTH = 24;

export function Passes({ lane, longest }: { lane: Lane; longest: number }) {
  const place = useRef<HTMLCanvasElement>(null);
  const scale = useRef(longest);
  scale.current = longest;
  useEffect(() => {
    const canvas = place.current!;
    const draw = () => paint(canvas, lane, Math.max(scale.current, MIN_LENGTH));
    const unsubscribe = lane.onPaint(draw);
    const size = new ResizeObserver(draw);
    size.observe(canvas);
    return () => {
      unsubscribe();
      size.disconnect();
    };
  }, [lane]);
  useEffect(() => paint(place.current!, lane, Math.max(longest, MIN_LENGTH)), [longest, theme.value]);
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

/** Minimum width in pixels of separate tokens; narrower ones of one origin are joined. */
const MIN_SEPARATE_WIDTH = 4;

interface Block {
  source: Source;
  left: number;
  width: number;
}

function blocksOf(tokens: readonly Token[], step: number): Block[] {
  const gap = step > 5 ? 1 : 0;
  const blocks: Block[] = [];
  tokens.forEach(({ source }, index) => {
    const last = blocks.at(-1);
    if (step < MIN_SEPARATE_WIDTH && last?.source === source) last.width = (index + 1) * step - last.left;
    else blocks.push({ source, left: index * step, width: step - gap });
  });
  return blocks;
}

/** Draws all blocks of an origin at once, since thousands of tokens are painted in every frame. */
function paintTokens(pen: CanvasRenderingContext2D, tokens: readonly Token[], step: number, colour: (name: string) => string): void {
  const blocks = blocksOf(tokens, step);
  for (const source of SOURCES) {
    const area = new Path2D();
    for (const block of blocks) if (block.source === source) area.rect(block.left, 0, block.width, TOKEN_HEIGHT);
    pen.fillStyle = colour(source === "sampled" ? "sampled" : `${source}-soft`);
    pen.fill(area);
    if (source === "sampled") continue;
    pen.save();
    pen.clip(area);
    pen.strokeStyle = colour(source);
    hatch(pen, source, area, tokens.length * step);
    pen.restore();
  }
}

/** The patterns of the legend, drawn in code, since a canvas cannot use style sheets. */
function hatch(pen: CanvasRenderingContext2D, source: Source, area: Path2D, width: number): void {
  pen.lineWidth = source === "drafted" ? 3 : 2;
  if (source === "leapt") {
    pen.stroke(area);
    return;
  }
  pen.beginPath();
  const [apart, slope] = source === "drafted" ? [7, TOKEN_HEIGHT] : [5, 0];
  for (let x = 1 - slope; x < width; x += apart) {
    pen.moveTo(x, TOKEN_HEIGHT);
    pen.lineTo(x + slope, 0);
  }
  pen.stroke();
}

/** Draws a block for each forward pass, and a line under the other tokens that it added. */
function paintPasses(pen: CanvasRenderingContext2D, lane: Lane, step: number, colour: (name: string) => string): void {
  const gap = step > 5 ? 1 : 0;
  const [lines, blocks] = [new Path2D(), new Path2D()];
  let passes = 0;
  let tokens = 0;
  for (const mark of lane.passMarks) {
    const fresh = mark.passes - passes;
    const width = ((mark.tokens - tokens) * step) / Math.max(1, fresh);
    for (let each = 0; each < fresh; each++) {
      const left = tokens * step + each * width;
      lines.rect(left, PASS_TOP + PASS_HEIGHT / 2 - 1, Math.max(0, width - gap), 2);
      blocks.rect(left, PASS_TOP, Math.max(1, Math.min(step, width) - gap), PASS_HEIGHT);
    }
    passes = mark.passes;
    tokens = mark.tokens;
  }
  pen.fillStyle = colour("line-strong");
  pen.fill(lines);
  pen.fillStyle = colour("text");
  pen.fill(blocks);
}
