/** The camera: the part of a drawing in a window. Lengths are pixels of the screen or drawing. */

export interface Size {
  width: number;
  height: number;
}

/** A point of the drawing appears at its coordinates times `scale`, plus `x` and `y`. */
export interface Camera {
  x: number;
  y: number;
  scale: number;
}

export const SMALLEST = 0.0005;
export const LARGEST = 4;
/** Minimum scale at which the drawing's text can be read. */
export const READABLE = 0.8;
const MARGIN = 16;

/** The camera that shows the whole drawing, at a scale of at most 1. */
export function fit(drawing: Size, window: Size): Camera {
  const scale = bounded(Math.min(1, (window.width - 2 * MARGIN) / drawing.width, (window.height - 2 * MARGIN) / drawing.height));
  return {
    scale,
    x: (window.width - drawing.width * scale) / 2,
    y: (window.height - drawing.height * scale) / 2,
  };
}

/** The first camera of a drawing: all of it if it is readable, else its top at a readable scale. */
export function opening(drawing: Size, window: Size, start: { x: number; y: number }): Camera {
  const whole = fit(drawing, window);
  if (whole.scale >= READABLE) return whole;
  const scale = Math.max(READABLE, Math.min(1, (window.width - 2 * MARGIN) / drawing.width));
  return { scale, x: around(start.x * scale, drawing.width * scale, window.width), y: MARGIN };
}

export function moved(camera: Camera, dx: number, dy: number): Camera {
  return { ...camera, x: camera.x + dx, y: camera.y + dy };
}

/** The scale times `factor`; the point of the window at (x, y) stays in place. */
export function zoomed(camera: Camera, factor: number, x: number, y: number): Camera {
  const scale = bounded(camera.scale * factor);
  const by = scale / camera.scale;
  return { scale, x: x - (x - camera.x) * by, y: y - (y - camera.y) * by };
}

/** The camera that shows the point (x, y) at a readable scale, in the middle of the window if possible.
 * Unchanged if the point is readable already and not near an edge. */
export function showing(camera: Camera, drawing: Size, window: Size, x: number, y: number): Camera {
  const at = { x: x * camera.scale + camera.x, y: y * camera.scale + camera.y };
  const [across, down] = [window.width * 0.12, window.height * 0.12];
  const inside = at.x > across && at.x < window.width - across && at.y > down && at.y < window.height - down;
  if (inside && camera.scale >= READABLE) return camera;
  const scale = Math.max(camera.scale, READABLE);
  return { scale, x: around(x * scale, drawing.width * scale, window.width), y: around(y * scale, drawing.height * scale, window.height) };
}

/** Offset of a drawing with that length: `place` is as near to the middle as leaves no room empty. */
function around(place: number, length: number, room: number): number {
  if (length <= room - 2 * MARGIN) return (room - length) / 2;
  return Math.min(MARGIN, Math.max(room - MARGIN - length, room / 2 - place));
}

/** The camera, moved as little as needed to keep a part of the drawing in the window. */
export function kept(camera: Camera, drawing: Size, window: Size): Camera {
  const between = (value: number, length: number, room: number) => Math.max(Math.min(48, room / 2) - length, Math.min(room - Math.min(48, room / 2), value));
  return {
    scale: camera.scale,
    x: between(camera.x, drawing.width * camera.scale, window.width),
    y: between(camera.y, drawing.height * camera.scale, window.height),
  };
}

/** The interpolation between two cameras: `part` is 0 at the first and 1 at the second. */
export function between(from: Camera, to: Camera, part: number): Camera {
  const mix = (a: number, b: number) => a + (b - a) * part;
  return { scale: mix(from.scale, to.scale), x: mix(from.x, to.x), y: mix(from.y, to.y) };
}

function bounded(scale: number): number {
  return Math.max(SMALLEST, Math.min(LARGEST, scale));
}
