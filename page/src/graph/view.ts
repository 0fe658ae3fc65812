/** The window onto a drawing: its camera, moved by the user or by the answer. */

import { signal, type Signal } from "@preact/signals";

import { between, fit, kept, moved, opening, READABLE, showing, zoomed, type Camera, type Size } from "./camera";
import type { Picture } from "./picture";

/** Milliseconds of a camera movement. */
const GLIDE = 250;

export class View {
  /** Whether the camera follows the answer; false once the user moves it. */
  readonly following: Signal<boolean> = signal(true);
  #camera: Camera = { x: 0, y: 0, scale: 1 };
  #drawing: Size = { width: 1, height: 1 };
  #frame = 0;
  /** Sets the camera once the window has a size: it has none while its tab is hidden. */
  #pending: (() => void) | null = null;
  readonly #resizes: ResizeObserver;

  constructor(
    private readonly element: HTMLElement,
    private readonly picture: Picture,
  ) {
    this.#resizes = new ResizeObserver(() => {
      if (this.#window().width === 0) return;
      if (this.#pending) this.#pending();
      else this.#look(this.#camera);
    });
    this.#resizes.observe(element);
  }

  close(): void {
    this.#resizes.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  /** Shows another drawing from its start, or with the current camera if `stay` is true. */
  open(drawing: Size, start: { x: number; y: number }, stay: boolean): void {
    this.#drawing = drawing;
    this.#pending = () => {
      this.#pending = null;
      this.#look(stay ? this.#camera : opening(drawing, this.#window(), start));
    };
    if (this.#window().width > 0) this.#pending();
  }

  /** Moves the drawing for the user, and stops following the answer. */
  pan(dx: number, dy: number): void {
    this.following.value = false;
    this.#look(moved(this.#camera, dx, dy));
  }

  /** Zooms for the user, about a point of the page or the middle; stops following the answer. */
  zoom(factor: number, clientX?: number, clientY?: number): void {
    this.following.value = false;
    const box = this.element.getBoundingClientRect();
    const at = { x: (clientX ?? box.left + box.width / 2) - box.left, y: (clientY ?? box.top + box.height / 2) - box.top };
    this.#look(zoomed(this.#camera, factor, at.x, at.y));
  }

  /** Zooms in at a point of the page if the drawing is too small to be read. */
  enlarge(clientX: number, clientY: number): void {
    if (this.#camera.scale >= READABLE) return;
    const box = this.element.getBoundingClientRect();
    this.following.value = false;
    this.#glide(zoomed(this.#camera, READABLE / this.#camera.scale, clientX - box.left, clientY - box.top));
  }

  fit(): void {
    this.following.value = false;
    this.#glide(fit(this.#drawing, this.#window()));
  }

  /** Moves a place of the drawing into view for the user, and stops following the answer. */
  visit(place: { x: number; y: number }): void {
    this.following.value = false;
    this.show(place);
  }

  /** Moves a place of the drawing into view. */
  show(place: { x: number; y: number }): void {
    if (this.#pending === null) this.#glide(showing(this.#camera, this.#drawing, this.#window(), place.x, place.y));
  }

  #window(): Size {
    return { width: this.element.clientWidth, height: this.element.clientHeight };
  }

  #glide(to: Camera): void {
    const from = this.#camera;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.#look(to);
    const began = performance.now();
    const step = (now: number) => {
      const part = Math.max(0, Math.min(1, (now - began) / GLIDE));
      this.#look(between(from, to, 1 - (1 - part) ** 3));
      if (part < 1) this.#frame = requestAnimationFrame(step);
    };
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(step);
  }

  #look(camera: Camera): void {
    cancelAnimationFrame(this.#frame);
    this.#camera = kept(camera, this.#drawing, this.#window());
    this.picture.look(this.#camera, this.#window());
  }
}
