/** Which part of a drawing a window shows. Lengths are in pixels, of the screen or of the drawing. */

export interface Size {
  width: number;
  height: number;
}

/** A point of the drawing is shown at `scale` times its place, plus `x` and `y`. */
export interface Camera {
  x: number;
  y: number;
  scale: number;
}

export const SMALLEST = 0.0005;
export const LARGEST = 4;
/** Below this the drawing's text cannot be read. */
export const READABLE = 0.8;
const MARGIN = 16;

/** All of the drawing, no larger than it was drawn. */
export function fit(drawing: Size, window: Size): Camera {
  const scale = bounded(Math.min(1, (window.width - 2 * MARGIN) / drawing.width, (window.height - 2 * MARGIN) / drawing.height));
  return {
    scale,
    x: (window.width - drawing.width * scale) / 2,
    y: (window.height - drawing.height * scale) / 2,
  };
}

/** The top of the drawing, as wide as it can be read: where people begin to look. */
export function opening(drawing: Size, window: Size, start: { x: number; y: number }): Camera {
  const whole = fit(drawing, window);
  if (whole.scale >= READABLE) return whole;
  const scale = Math.max(READABLE, Math.min(1, (window.width - 2 * MARGIN) / drawing.width));
  return { scale, x: around(start.x * scale, drawing.width * scale, window.width), y: MARGIN };
}

export function moved(camera: Camera, dx: number, dy: number): Camera {
  return { ...camera, x: camera.x + dx, y: camera.y + dy };
}

/** `factor` times as large; the point of the window at (x, y) keeps its place. */
export function zoomed(camera: Camera, factor: number, x: number, y: number): Camera {
  const scale = bounded(camera.scale * factor);
  const by = scale / camera.scale;
  return { scale, x: x - (x - camera.x) * by, y: y - (y - camera.y) * by };
}

/** Shows the place at (x, y), large enough to be read, with as much of the drawing around it as there is room for. As
 * it was where the place is well in sight already. */
export function showing(camera: Camera, drawing: Size, window: Size, x: number, y: number): Camera {
  const at = { x: x * camera.scale + camera.x, y: y * camera.scale + camera.y };
  const [across, down] = [window.width * 0.12, window.height * 0.12];
  const inside = at.x > across && at.x < window.width - across && at.y > down && at.y < window.height - down;
  if (inside && camera.scale >= READABLE) return camera;
  const scale = Math.max(camera.scale, READABLE);
  return { scale, x: around(x * scale, drawing.width * scale, window.width), y: around(y * scale, drawing.height * scale, window.height) };
}

/** Where a drawing of that length begins, so that the place is in the middle, or as near to it as leaves no room empty. */
function around(place: number, length: number, room: number): number {
  if (length <= room - 2 * MARGIN) return (room - length) / 2;
  return Math.min(MARGIN, Math.max(room - MARGIN - length, room / 2 - place));
}

/** Not so far that nothing of the drawing is left in the window. */
export function kept(camera: Camera, drawing: Size, window: Size): Camera {
  const between = (value: number, length: number, room: number) => Math.max(Math.min(48, room / 2) - length, Math.min(room - Math.min(48, room / 2), value));
  return {
    scale: camera.scale,
    x: between(camera.x, drawing.width * camera.scale, window.width),
    y: between(camera.y, drawing.height * camera.scale, window.height),
  };
}

/** On the way from one camera to another, `part` of it done (0 to 1). */
export function between(from: Camera, to: Camera, part: number): Camera {
  const mix = (a: number, b: number) => a + (b - a) * part;
  return { scale: mix(from.scale, to.scale), x: mix(from.x, to.x), y: mix(from.y, to.y) };
}

function bounded(scale: number): number {
  return Math.max(SMALLEST, Math.min(LARGEST, scale));
}
