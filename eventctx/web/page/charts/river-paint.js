/** Paints what stays of the river as the cursor moves: axes, stacks, marks and lanes. */

import { costText, shortTokens, utcText } from '../parts/numbers.js';
import { cliffLabel, cliffMarks, AXIS_WIDTH, barOf, stackTops, tokensToY } from './river-shape.js';
import { BESIDE_PATTERN, GROUP_PATTERNS, fillPatterned, patternOf } from './patterns.js';
import { BAND_NAMES, cachedShare } from './request-words.js';
import { MICRO, RiverRows } from './river-rows.js';
import { columnLeft, columnMiddle, columnWidth, labelsThatFit, requestsToName, tickText } from './scales.js';
import { sharp } from './surface.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('./palette.js').Palette} Palette */
/** @typedef {import('./river-shape.js').RiverShape} RiverShape */
/** @typedef {import('./river-rows.js').CostRows} CostRows */
/** @typedef {import('./river-shape.js').Cliff} Cliff */
/** @typedef {CanvasRenderingContext2D} Context */

/** How far above the chart the numbers of compactions stand. */
export const LABEL_RISE = 17;

/**
 * All that the lower canvas shows.
 * @typedef {{timeline: Timeline, rows: RiverRows | CostRows, shape: RiverShape, colours: Palette,
 *   cliffs: readonly Cliff[], hits: readonly number[]}} RiverPicture
 */

/** @param {Context} context @param {RiverPicture} picture */
export function paintRiver(context, picture) {
  paintTokenAxis(context, picture);
  paintStacks(context, picture);
  const inTokens = picture.rows instanceof RiverRows;
  const taken = inTokens ? paintBudget(context, picture) : 0;
  paintCliffs(context, picture, taken);
  if (inTokens) {
    paintLosses(context, picture);
    paintReported(context, picture);
  }
  paintKnown(context, picture);
  paintRequestNames(context, picture);
  paintCache(context, picture);
  paintHits(context, picture);
}

/** How a band is filled. @param {Palette} colours @param {number} band */
export function bandStyle({ groups, beside, ground, text, forced, ratio }, band) {
  const pattern = band === 0 ? BESIDE_PATTERN : (GROUP_PATTERNS[band - 1] ?? 'solid');
  const colour = band === 0 ? beside : (groups[band - 1] ?? text);
  if (!forced) return { colour, pattern, ink: ground, ground: band === 0 ? 0.55 : 1, strength: 0.26, ratio };
  return { colour, pattern, ink: text, ground: pattern === 'solid' ? 1 : 0, strength: 1, ratio };
}

/** @param {Context} context @param {RiverPicture} picture */
function paintTokenAxis(context, { shape, rows, colours }) {
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  for (const tick of shape.ticks) {
    const y = sharp(tokensToY(shape, tick));
    context.fillStyle = tick === 0 ? colours.axis : colours.grid;
    context.fillRect(AXIS_WIDTH, y, shape.right - AXIS_WIDTH, 1);
    context.fillStyle = colours.axis;
    context.fillText(rows instanceof RiverRows ? tickText(tick) : costText(tick / MICRO), AXIS_WIDTH - 8, y);
  }
}

/** @param {Context} context @param {RiverPicture} picture */
function paintStacks(context, { shape, rows, colours }) {
  const { columns, base } = shape;
  const paths = BAND_NAMES.map(() => new Path2D());
  for (let request = columns.first; request <= columns.last; request += 1) {
    const [x, width] = barOf(columns, request, sharp);
    let below = base;
    stackTops(rows.of(request)).forEach((tokens, band) => {
      const y = sharp(tokensToY(shape, tokens));
      if (y < below) paths[band]?.rect(x, y, width, below - y);
      below = Math.min(below, y);
    });
  }
  paths.forEach((path, band) => {
    fillPatterned(context, path, bandStyle(colours, band));
    if (!colours.forced) return;
    context.strokeStyle = colours.text;
    context.stroke(path);
  });
}

/**
 * @param {Context} context
 * @param {RiverPicture} picture
 * @returns {number} the room that it takes at the right, above the stacks
 */
function paintBudget(context, { shape, timeline, colours }) {
  const { columns } = shape;
  const { budget } = timeline.requests;
  const line = new Path2D();
  let before = -1;
  let above = 0;
  for (let request = columns.first; request <= columns.last; request += 1) {
    const limit = budget[request] ?? -1;
    if (limit > shape.most) above = Math.max(above, limit);
    if (limit < 0 || limit > shape.most) {
      before = -1;
      continue;
    }
    const y = sharp(tokensToY(shape, limit)) + 0.5;
    if (before < 0) line.moveTo(columnLeft(columns, request), y);
    else if (before !== limit) line.lineTo(columnLeft(columns, request), y);
    line.lineTo(columnLeft(columns, request + 1), y);
    before = limit;
  }
  context.strokeStyle = colours.budget;
  context.lineWidth = 1.5;
  context.setLineDash([6, 4]);
  context.stroke(line);
  context.setLineDash([]);
  return above === 0 ? 0 : paintBudgetAbove(context, shape, above, colours);
}

/**
 * A budget that would flatten the requests stands next to the marks, as a number.
 * @param {Context} context
 * @param {RiverShape} shape
 * @param {number} budget
 * @param {Palette} colours
 */
function paintBudgetAbove(context, shape, budget, colours) {
  const text = `budget ${shortTokens(budget)} ↑`;
  context.fillStyle = colours.budget;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  context.fillText(text, shape.right, shape.top - LABEL_RISE);
  return context.measureText(text).width + 20;
}

/** @param {Context} context @param {RiverPicture} picture @param {number} taken room at the right */
function paintCliffs(context, { shape, cliffs, colours }, taken) {
  const { columns, top, base } = shape;
  const shown = cliffs.filter(({ request }) => request >= columns.first && request <= columns.last + 1);
  const marks = cliffMarks(shown, (request) => sharp(columnLeft(columns, request)), 9);
  context.strokeStyle = colours.axis;
  context.lineWidth = 1;
  context.setLineDash([2, 3]);
  for (const { request, numbers } of shown) {
    if (numbers.length === 0) continue;
    const x = sharp(columnLeft(columns, request)) - 0.5;
    context.beginPath();
    context.moveTo(x, top - 4);
    context.lineTo(x, base);
    context.stroke();
  }
  context.setLineDash([]);
  for (const { x, cliff } of marks) paintCliffMark(context, x - 0.5, top - 3, cliff, colours);
  paintCliffLabels(context, marks, { left: AXIS_WIDTH - 20, right: shape.right + 12 - taken, y: top - LABEL_RISE }, colours);
}

/**
 * A question mark above each request whose prompt was smaller than the log says: it is inferred.
 * @param {Context} context
 * @param {RiverPicture} picture
 */
function paintLosses(context, { shape, timeline, colours }) {
  const { columns } = shape;
  for (const { position, kind } of timeline.losses) {
    const request = timeline.requestAt(position);
    if (kind !== 'prompt' || request < columns.first || request > columns.last) continue;
    const y = tokensToY(shape, timeline.requests.total[request] ?? 0);
    paintLossMark(context, columnMiddle(columns, request), y - 3, colours);
  }
}

/** @param {Context} context @param {number} x @param {number} foot @param {Palette} colours */
export function paintLossMark(context, x, foot, colours) {
  context.fillStyle = colours.warn;
  context.textAlign = 'center';
  context.textBaseline = 'bottom';
  context.fillText('?', x, foot);
}

/**
 * A full triangle for a compaction that was applied, an empty one for a try.
 * @param {Context} context
 * @param {number} x
 * @param {number} tip y of its tip
 * @param {Cliff} cliff
 * @param {Palette} colours
 */
export function paintCliffMark(context, x, tip, { numbers }, colours) {
  context.beginPath();
  context.moveTo(x - 4, tip - 7);
  context.lineTo(x + 4, tip - 7);
  context.lineTo(x, tip);
  context.closePath();
  context.fillStyle = context.strokeStyle = colours.text;
  context.lineWidth = 1;
  if (numbers.length > 0) context.fill();
  else context.stroke();
}

/**
 * Numbers above their marks, as many as there is room for.
 * @param {Context} context
 * @param {readonly {x: number, cliff: Cliff}[]} marks
 * @param {{left: number, right: number, y: number}} room
 * @param {Palette} colours
 */
export function paintCliffLabels(context, marks, { left, right, y }, colours) {
  const labels = marks.flatMap(({ x, cliff }) => {
    const text = cliffLabel(cliff);
    return text === '' ? [] : [{ x, width: context.measureText(text).width, text }];
  });
  context.fillStyle = colours.text;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  for (const { x, text } of labelsThatFit(labels, 8, left, right)) context.fillText(text, x, y);
}

/** Dots, or short lines where a dot would be wider than its column. @param {Context} context @param {RiverPicture} picture */
function paintReported(context, { shape, timeline, colours }) {
  const { columns } = shape;
  const { total, estimated } = timeline.requests;
  const radius = Math.min(2.6, columns.step / 2);
  const path = new Path2D();
  for (let request = columns.first; request <= columns.last; request += 1) {
    if (estimated[request] === 1) continue;
    const x = columnMiddle(columns, request);
    const y = tokensToY(shape, total[request] ?? 0);
    if (radius < 1.4) {
      const width = columnWidth(columns, request);
      path.rect(x - width / 2, y - 0.75, Math.max(1, width), 1.5);
    } else {
      path.moveTo(x + radius, y);
      path.arc(x, y, radius, 0, 7);
    }
  }
  context.fillStyle = colours.reported;
  context.strokeStyle = colours.ground;
  context.lineWidth = 1.5;
  if (radius >= 2) context.stroke(path);
  context.fill(path);
}

/** Solid: observed. Two lines: prepared. Rising lines: reconstructed. @param {Context} context @param {RiverPicture} picture */
function paintKnown(context, { shape, timeline, colours }) {
  const { columns, known: y } = shape;
  const { known } = timeline.requests;
  for (let request = columns.first; request <= columns.last; ) {
    const code = known[request] ?? -1;
    let end = request;
    while (end < columns.last && known[end + 1] === code) end += 1;
    const x = sharp(columnLeft(columns, request));
    paintKnownRun(context, { x, y, width: sharp(columnLeft(columns, end + 1)) - x - 1, height: 5 }, code, colours);
    request = end + 1;
  }
}

/**
 * @param {Context} context
 * @param {{x: number, y: number, width: number, height: number}} box
 * @param {number} code
 * @param {Palette} colours
 */
export function paintKnownRun(context, { x, y, width, height }, code, { axis, ratio }) {
  context.fillStyle = axis;
  if (code === 0) {
    context.fillRect(x, y, width, height);
  } else if (code === 1) {
    context.fillRect(x, y, width, 1);
    context.fillRect(x, y + height - 1, width, 1);
  } else {
    context.fillStyle = patternOf(context, 'rising', axis, ratio) ?? axis;
    context.fillRect(x, y, width, height);
  }
}

/** @param {Context} context @param {RiverPicture} picture */
function paintRequestNames(context, { shape, timeline, colours }) {
  const { columns, names, base } = shape;
  const wanted = requestLabels(context, timeline, columns);
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillStyle = colours.axis;
  for (const { x, text } of labelsThatFit(wanted, 14, 20, shape.right + 10)) {
    context.fillText(text, x, names + 11);
    context.fillRect(sharp(x), base + 1, 1, 3);
  }
}

/**
 * Names of requests below their columns, the important ones first; by time, when they were made.
 * @param {Context} context
 * @param {Timeline} timeline
 * @param {import('./scales.js').Columns} columns
 */
export function requestLabels(context, timeline, columns) {
  // Measuring each of four hundred names takes longer than all of the stacks.
  const digit = context.measureText('0').width;
  return requestsToName(columns, timeline.requests.turn).map((request) => {
    const text = columns.edges === undefined ? timeline.name(request) : utcText(timeline.requests.time[request] ?? 0).slice(11, 16);
    return { text, x: columnMiddle(columns, request), width: text.length * digit };
  });
}

/** @param {Context} context @param {RiverPicture} picture */
function paintCache(context, { shape, timeline, colours }) {
  const { columns, cacheTop, cacheBase } = shape;
  const height = cacheBase - cacheTop;
  if (height === 0) return;
  context.fillStyle = colours.grid;
  context.fillRect(AXIS_WIDTH, cacheTop, shape.right - AXIS_WIDTH, 1);
  context.fillStyle = colours.axis;
  context.fillRect(AXIS_WIDTH, cacheBase, shape.right - AXIS_WIDTH, 1);
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  context.fillText('cache', AXIS_WIDTH - 8, cacheTop + height / 2);
  context.fillStyle = colours.cache;
  for (let request = columns.first; request <= columns.last; request += 1) {
    const share = cachedShare(timeline.requests, request);
    if (share === null) continue;
    const [x, width] = barOf(columns, request, sharp);
    const high = Math.max(1, sharp(height * share));
    context.fillRect(x, cacheBase - high, width, high);
  }
}

/** @param {Context} context @param {RiverPicture} picture */
function paintHits(context, { shape, hits, colours }) {
  const { columns, base } = shape;
  context.fillStyle = colours.warn;
  context.strokeStyle = colours.ground;
  context.lineWidth = 2;
  for (const request of hits) {
    if (request < columns.first || request > columns.last) continue;
    const x = columnMiddle(columns, request);
    context.beginPath();
    context.rect(x - 1.5, base - 9, 3, 9);
    context.stroke();
    context.fill();
  }
}
