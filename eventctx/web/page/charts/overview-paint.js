/** Paints the overview: the envelope of all requests, and the window over it. */

import { cliffMarks, cliffsOf, AXIS_WIDTH } from './river-shape.js';
import { paintCliffMark } from './river-paint.js';
import { columnLeft, requestColumns, tickText } from './scales.js';
import { sharp } from './surface.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('./palette.js').Palette} Palette */
/** @typedef {CanvasRenderingContext2D} Context */
/** @typedef {{columns: import('./scales.js').Columns, top: number, base: number, pixels: number}} OverviewShape */

const MARKS_HEIGHT_ABOVE = 12;
const RIGHT_MARGIN = 12;

/**
 * `pixels`: columns of the envelope, at most one for each request.
 * @param {import('./surface.js').Size} size
 * @param {number} count of requests
 * @returns {OverviewShape | null}
 */
export function overviewShape({ width, height }, count) {
  if (width < 80 || count === 0) return null;
  const columns = requestColumns(0, count - 1, AXIS_WIDTH, width - AXIS_WIDTH - RIGHT_MARGIN);
  const pixels = Math.min(count, Math.floor(columns.width));
  return { columns, top: MARKS_HEIGHT_ABOVE, base: height - 8, pixels };
}

/**
 * @param {Context} context
 * @param {Timeline} timeline
 * @param {OverviewShape} shape
 * @param {Palette} colours
 * @param {readonly number[]} hits
 */
export function paintOverview(context, timeline, shape, colours, hits) {
  const { columns, top, base, pixels } = shape;
  const { min, max } = envelopeOf(timeline, pixels);
  const most = max.reduce((one, other) => Math.max(one, other), 1);
  /** @param {number} tokens */
  const yOf = (tokens) => sharp(base - ((base - top) * Math.max(0, tokens)) / most);
  const below = new Path2D();
  const between = new Path2D();
  for (let at = 0; at < pixels; at += 1) {
    const [low, high] = [min[at] ?? -1, max[at] ?? -1];
    if (high < 0) continue;
    const x = sharp(columns.left + (columns.width * at) / pixels);
    const width = sharp(columns.left + (columns.width * (at + 1)) / pixels) - x;
    below.rect(x, yOf(low), width, base - yOf(low));
    between.rect(x, yOf(high) - 0.5, width, Math.max(1, yOf(low) - yOf(high) + 1));
  }
  context.fillStyle = colours.axis;
  context.globalAlpha = 0.36;
  context.fill(below);
  context.globalAlpha = 0.8;
  context.fill(between);
  context.globalAlpha = 1;
  context.fillRect(columns.left, base, columns.width, 1);
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  context.fillText(tickText(most), AXIS_WIDTH - 8, top + 6);
  const cliffs = cliffsOf(timeline.compactions, (position) => timeline.requestAt(position));
  const marks = cliffMarks(cliffs, (request) => sharp(columnLeft(columns, request)), 8);
  for (const { x, cliff } of marks) paintCliffMark(context, x, top - 3, cliff, colours);
  context.fillStyle = colours.warn;
  for (const request of hits) context.fillRect(sharp(columnLeft(columns, request)) - 0.5, base + 2, 2, 6);
}

/**
 * The least and the greatest total of every pixel column: five thousand requests on a thousand
 * pixels, drawn one by one, are a comb. -1 in a column without requests.
 *
 * @param {Timeline} timeline
 * @param {number} columns how many pixel columns all requests share
 * @returns {{min: Int32Array, max: Int32Array}}
 */
export function envelopeOf(timeline, columns) {
  const { count, total } = timeline.requests;
  const min = new Int32Array(columns).fill(-1);
  const max = new Int32Array(columns).fill(-1);
  // With fewer requests than columns, a request fills several.
  for (let column = 0; count > 0 && column < columns; column++) {
    const first = Math.floor((column * count) / columns);
    const end = Math.max(first + 1, Math.floor(((column + 1) * count) / columns));
    for (let request = first; request < end; request++) {
      if (min[column] < 0 || total[request] < min[column]) min[column] = total[request];
      if (total[request] > max[column]) max[column] = total[request];
    }
  }
  return { min, max };
}

/**
 * What moves: the window, with what lies outside of it pale; the cursor; the marks.
 * @param {Context} context
 * @param {OverviewShape} shape
 * @param {Palette} colours
 * @param {{window: readonly [number, number], cursor: number, marks: {a: number | null, b: number | null}}} moving
 */
export function paintOverviewCursor(context, { columns, top, base }, colours, { window, cursor, marks }) {
  const [first, last] = window;
  const left = sharp(columnLeft(columns, first));
  const right = Math.max(left + 2, sharp(columnLeft(columns, last + 1)));
  context.fillStyle = colours.ground;
  context.globalAlpha = 0.4;
  context.fillRect(columns.left, top, left - columns.left, base - top);
  context.fillRect(right, top, columns.left + columns.width - right, base - top);
  context.globalAlpha = 0.1;
  context.fillStyle = colours.window;
  context.fillRect(left, top, right - left, base - top);
  context.globalAlpha = 1;
  context.strokeStyle = colours.window;
  context.lineWidth = 1.5;
  context.strokeRect(left, top - 1, right - left, base - top + 2);
  context.fillStyle = colours.accent;
  for (const request of [marks.a, marks.b]) {
    if (request !== null) context.fillRect(sharp(columnLeft(columns, request) + columns.step / 2) - 1, top, 2, base - top);
  }
  if (cursor < 0) return;
  context.fillStyle = colours.cursor;
  context.fillRect(sharp(columnLeft(columns, cursor) + columns.step / 2 - 0.75), top - 1, 1.5, base - top + 6);
}
