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
