/** Handlers for pointers, wheel and keys in the window of a drawing. */

import type { View } from "./view";

/** Pixels that a pointer has to move for a drag instead of a click. */
const SLACK = 4;
const STEP = 60;
const ZOOM = 1.25;

/** Adds the listeners; returns a function that removes them. */
export function listen(element: HTMLElement, view: View, start: () => void): () => void {
  const away = new AbortController();
  const options = { signal: away.signal };
  const drag = new Drag(element, view);
  element.addEventListener("pointerdown", (event) => drag.down(event), options);
  element.addEventListener("pointermove", (event) => drag.move(event), options);
  for (const name of ["pointerup", "pointercancel"] as const) element.addEventListener(name, (event) => drag.up(event), options);
  // The end of a drag is not a click.
  element.addEventListener("click", (event) => drag.dragged && event.stopImmediatePropagation(), { ...options, capture: true });
  element.addEventListener("wheel", (event) => wheel(event, element, view), { ...options, passive: false });
  element.addEventListener("keydown", (event) => key(event, view, start), options);
  return () => away.abort();
}

class Drag {
  dragged = false;
  readonly #held = new Map<number, { x: number; y: number }>();
  #from = { x: 0, y: 0 };

  constructor(
    private readonly element: HTMLElement,
    private readonly view: View,
  ) {}

  down(event: PointerEvent): void {
    if (event.button !== 0) return;
    if (this.#held.size === 0) {
      this.dragged = false;
      this.#from = { x: event.clientX, y: event.clientY };
    }
    this.#held.set(event.pointerId, { x: event.clientX, y: event.clientY });
  }

  move(event: PointerEvent): void {
    const last = this.#held.get(event.pointerId);
    if (!last) return;
    const here = { x: event.clientX, y: event.clientY };
    if (!this.dragged && this.#held.size === 1) {
      if (Math.hypot(here.x - this.#from.x, here.y - this.#from.y) < SLACK) return;
      this.element.setPointerCapture(event.pointerId);
    }
    this.dragged = true;
    const other = [...this.#held].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      // Two fingers: the scale follows their distance, and the drawing follows their middle.
      const factor = distance(here, other) / Math.max(1, distance(last, other));
      this.view.zoom(factor, (here.x + other.x) / 2, (here.y + other.y) / 2);
      this.view.pan((here.x - last.x) / 2, (here.y - last.y) / 2);
    } else this.view.pan(here.x - last.x, here.y - last.y);
    this.#held.set(event.pointerId, here);
  }

  up(event: PointerEvent): void {
    this.#held.delete(event.pointerId);
  }
}

/** The wheel scrolls the page unless the drawing has the focus, so scrolling past it does not zoom.
 * A pinch on a touch pad arrives as a wheel event with Control, and always zooms the drawing. */
function wheel(event: WheelEvent, element: HTMLElement, view: View): void {
  if (!event.ctrlKey && !element.matches(":focus-within")) return;
  event.preventDefault();
  const pixels = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 24 : 1);
  view.zoom(Math.exp(-Math.max(-120, Math.min(120, pixels)) * (event.ctrlKey ? 0.01 : 0.002)), event.clientX, event.clientY);
}

function key(event: KeyboardEvent, view: View, start: () => void): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const does: Record<string, () => void> = {
    ArrowLeft: () => view.pan(STEP, 0),
    ArrowRight: () => view.pan(-STEP, 0),
    ArrowUp: () => view.pan(0, STEP),
    ArrowDown: () => view.pan(0, -STEP),
    "+": () => view.zoom(ZOOM),
    "=": () => view.zoom(ZOOM),
    "-": () => view.zoom(1 / ZOOM),
    "0": () => view.fit(),
    Home: start,
  };
  const found = does[event.key];
  if (!found) return;
  event.preventDefault();
  found();
}

function distance(a: { x: number; y: number }, b: { x: number; y: number }): number {
  return Math.hypot(a.x - b.x, a.y - b.y);
}
