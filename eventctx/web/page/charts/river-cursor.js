/** Paints what moves over the river: the cursor, the hovered request, the marks A and B. */

import { columnLeft, columnMiddle, columnWidth } from './scales.js';
import { sharp } from './surface.js';

/** @typedef {import('./palette.js').Palette} Palette */
/** @typedef {import('./river-shape.js').RiverShape} RiverShape */
/** @typedef {CanvasRenderingContext2D} Context */

/**
 * @param {Context} context
 * @param {{shape: RiverShape, colours: Palette, cursor: number, hovered: number,
 *   marks: {a: number | null, b: number | null}}} picture
 */
export function paintRiverCursor(context, { shape, colours, cursor, hovered, marks }) {
  const { columns, top, cacheBase } = shape;
  /** @param {number} request */
  const isShown = (request) => request >= columns.first && request <= columns.last;
  if (hovered !== cursor && isShown(hovered)) {
    context.globalAlpha = 0.14;
    context.fillStyle = colours.cursor;
    context.fillRect(columnLeft(columns, hovered), top, Math.max(2, columnWidth(columns, hovered)), cacheBase - top);
    context.globalAlpha = 1;
  }
  if (isShown(cursor)) paintCursor(context, shape, colours, cursor);
  for (const [letter, request] of /** @type {const} */ ([['A', marks.a], ['B', marks.b]])) {
    if (request !== null && isShown(request)) paintMark(context, shape, colours, letter, request);
  }
}

/** @param {Context} context @param {RiverShape} shape @param {Palette} colours @param {number} cursor */
function paintCursor(context, { columns, top, names, cacheTop, cacheBase }, colours, cursor) {
  const x = columnLeft(columns, cursor);
  const width = Math.max(2, columnWidth(columns, cursor));
  context.globalAlpha = 0.16;
  context.fillStyle = colours.cursor;
  context.fillRect(x, top, width, cacheBase - top);
  context.globalAlpha = 1;
  context.fillStyle = colours.cursor;
  const middle = sharp(columnMiddle(columns, cursor) - 0.75);
  // The name of the request, between the two lanes, stays free.
  context.fillRect(middle, top - 2, 1.5, names - top + 2);
  context.fillRect(middle, cacheTop, 1.5, cacheBase - cacheTop);
}

/**
 * @param {Context} context
 * @param {RiverShape} shape
 * @param {Palette} colours
 * @param {string} letter
 * @param {number} request
 */
function paintMark(context, { columns, top, names, cacheTop, cacheBase }, { accent, ground }, letter, request) {
  const x = sharp(columnMiddle(columns, request));
  context.strokeStyle = context.fillStyle = accent;
  context.lineWidth = 1.5;
  context.setLineDash([3, 3]);
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x, names);
  context.moveTo(x, cacheTop);
  context.lineTo(x, cacheBase);
  context.stroke();
  context.setLineDash([]);
  context.fillRect(x - 8, top - 2, 16, 17);
  context.fillStyle = ground;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillText(letter, x, top + 7);
}
