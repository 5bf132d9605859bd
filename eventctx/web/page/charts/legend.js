/** The key to a chart: each pattern next to its word, and its figure where there is one. */

import { h } from '../core/element.js';
import { palette } from './palette.js';

/** @typedef {{swatch: HTMLCanvasElement, draw: (context: CanvasRenderingContext2D, width: number, height: number) => void,
 *   item: HTMLElement, figure: HTMLElement}} LegendItem */

const SWATCH_WIDTH = 16;
const SWATCH_HEIGHT = 12;

/** @param {string} word @param {LegendItem['draw']} draw @returns {LegendItem} */
export function legendItem(word, draw) {
  const swatch = h('canvas', { class: 'chart-swatch', 'aria-hidden': 'true' });
  const figure = h('span', { class: 'chart-figure' });
  const item = h('li', { class: 'chart-key' }, swatch, h('span', { text: word }), figure);
  return { swatch, draw, item, figure };
}

/**
 * Draws the patterns as the charts have them: in this theme's colours, at this density of pixels.
 * @param {readonly LegendItem[]} items
 */
export function paintLegend(items) {
  const { ratio } = palette.value;
  for (const { swatch, draw } of items) {
    swatch.width = SWATCH_WIDTH * ratio;
    swatch.height = SWATCH_HEIGHT * ratio;
    const context = swatch.getContext('2d');
    if (context === null) continue;
    context.scale(ratio, ratio);
    draw(context, SWATCH_WIDTH, SWATCH_HEIGHT);
  }
}

/**
 * Writes only what is new: the page lays out again for each text that is set.
 * @param {HTMLElement} element
 * @param {string} text
 */
export function writeText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
