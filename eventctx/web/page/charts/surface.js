/**
 * Two canvases over each other: the chart, and over it what moves with the cursor. A step of the
 * cursor draws the upper one alone.
 */

import { h } from '../core/element.js';
import { signal } from '../core/signals.js';
import { palette } from './palette.js';

/**
 * @typedef {{width: number, height: number}} Size in CSS pixels
 * @typedef {{box: HTMLElement, chart: CanvasRenderingContext2D, over: CanvasRenderingContext2D,
 *   size: import('../core/signals.js').Signal<Size>, end: () => void}} Surface
 */

/** @param {string} name class of the box @returns {Surface} */
export function makeSurface(name) {
  const lower = h('canvas', { class: 'chart-canvas', 'aria-hidden': 'true' });
  const upper = h('canvas', { class: 'chart-canvas', 'aria-hidden': 'true' });
  const box = h('div', { class: `chart-surface ${name}` }, lower, upper);
  const size = signal({ width: 0, height: 0 });
  const observer = new ResizeObserver(([entry]) => {
    const { width, height } = /** @type {ResizeObserverEntry} */ (entry).contentRect;
    const before = size.peek();
    if (width !== before.width || height !== before.height) size.value = { width, height };
  });
  observer.observe(box);
  return {
    box,
    chart: /** @type {CanvasRenderingContext2D} */ (lower.getContext('2d')),
    over: /** @type {CanvasRenderingContext2D} */ (upper.getContext('2d')),
    size,
    end: () => observer.disconnect(),
  };
}

/** The font that each canvas has. @type {WeakMap<HTMLCanvasElement, string>} */
const fonts = new WeakMap();

/**
 * Empties a canvas, and gives it as many pixels as the screen has for its box.
 * @param {CanvasRenderingContext2D} context
 * @param {Size} size
 */
export function freshCanvas(context, { width, height }) {
  const { ratio, font } = palette.peek();
  const { canvas } = context;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  // Setting a size throws the pixels away and makes new ones: only when it is another.
  const isNew = canvas.width !== wide || canvas.height !== high;
  if (isNew) {
    canvas.width = wide;
    canvas.height = high;
  }
  // All of it, to the last device pixel: what is cleared whole need not be copied first.
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, wide, high);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  // A font makes the browser work out the styles of the page; an empty canvas has forgotten it.
  if (isNew || fonts.get(canvas) !== font) {
    context.font = font;
    fonts.set(canvas, font);
  }
  context.globalAlpha = 1;
  context.setLineDash([]);
}

/** On the grid of the screen's pixels: edges stay sharp, neighbours meet without a seam. @param {number} x */
export function sharp(x) {
  const { ratio } = palette.peek();
  return Math.round(x * ratio) / ratio;
}

/** Long work is done in short slices, so that a key or a drag never waits for a chart: well below a frame, and far below what a person feels. */
const SLICE_MS = 7;

/**
 * Runs a generator after the next paint, a slice at a time: it yields where it may be put aside.
 * @template T
 * @param {Generator<void, T, void>} work
 * @param {(result: T) => void} done
 * @returns {() => void} gives it up
 */
export function inSlices(work, done) {
  let given = false;
  function run() {
    if (given) return;
    const until = performance.now() + SLICE_MS;
    do {
      const step = work.next();
      if (step.done) {
        given = true;
        done(step.value);
        return;
      }
    } while (performance.now() < until);
    setTimeout(run);
  }
  // The frame callback is before the paint, its timeout after it.
  requestAnimationFrame(() => setTimeout(run));
  return () => {
    given = true;
  };
}

/**
 * Calls once in the next frame, however often it was asked for.
 * @param {() => void} paint
 * @returns {{ask: () => void, end: () => void}}
 */
export function oncePerFrame(paint) {
  let frame = 0;
  return {
    ask() {
      if (frame !== 0) return;
      frame = requestAnimationFrame(() => {
        frame = 0;
        paint();
      });
    },
    end() {
      cancelAnimationFrame(frame);
      frame = 0;
    },
  };
}

/**
 * Where a pointer is, in pixels from the corner of its chart. @typedef {{x: number, y: number}} Point
 * @typedef {{press?: (at: Point, event: PointerEvent) => boolean | void, drag?: (at: Point) => void,
 *   release?: (at: Point) => void, hover?: (at: Point | null) => void}} PointerUse
 */

/**
 * Dragging and pointing on a chart, at most once a frame. `press` returns false to leave the pointer alone. The last place of a frame counts.
 * @param {HTMLElement} box
 * @param {PointerUse} use
 * @returns {() => void}
 */
export function usePointer(box, { press, drag, release, hover }) {
  /** @type {Point} */
  let at = { x: 0, y: 0 };
  let isDown = false;
  let isOver = false;
  const frame = oncePerFrame(() => {
    if (isDown) drag?.(at);
    else hover?.(isOver ? at : null);
  });
  /** @param {PointerEvent} event */
  function note({ clientX, clientY }) {
    const { left, top } = box.getBoundingClientRect();
    at = { x: clientX - left, y: clientY - top };
  }
  /** @type {Record<string, (event: PointerEvent) => void>} */
  const listeners = {
    pointerdown(event) {
      if (event.button !== 0) return;
      note(event);
      if (press?.(at, event) === false) return;
      isDown = true;
      box.setPointerCapture(event.pointerId);
    },
    pointermove(event) {
      note(event);
      isOver = true;
      frame.ask();
    },
    pointerup(event) {
      if (!isDown) return;
      note(event);
      drag?.(at);
      isDown = false;
      release?.(at);
    },
    pointercancel() {
      isDown = false;
    },
    pointerleave() {
      isOver = false;
      frame.ask();
    },
  };
  for (const [name, listener] of Object.entries(listeners)) {
    box.addEventListener(name, /** @type {EventListener} */ (listener));
  }
  return () => {
    frame.end();
    for (const [name, listener] of Object.entries(listeners)) {
      box.removeEventListener(name, /** @type {EventListener} */ (listener));
    }
  };
}
