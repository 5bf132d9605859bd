/**
 * Two canvases over each other: the chart, and over it what moves with the cursor. A step of the
 * cursor draws the upper one alone.
 */

import { h } from '../element.js';
import { signal } from '../signals.js';
import { palette } from './palette.js';

/**
 * @typedef {{width: number, height: number}} Size in CSS pixels
 * @typedef {{box: HTMLElement, chart: CanvasRenderingContext2D, over: CanvasRenderingContext2D,
 *   size: import('../signals.js').Signal<Size>, end: () => void}} Surface
 */

/**
 * @param {string} name class of the box
 * @returns {Surface}
 */
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
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = font;
  context.globalAlpha = 1;
  context.setLineDash([]);
}

/**
 * On the grid of the screen's pixels: edges stay sharp, neighbours meet without a seam.
 * @param {number} x
 */
export function sharp(x) {
  const { ratio } = palette.peek();
  return Math.round(x * ratio) / ratio;
}
