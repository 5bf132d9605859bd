/**
 * Where the cells of the presence map stand: messages from top to bottom, requests from left to
 * right. A row is one message, or so many of them that a long session fits: then it says what became
 * of most of them. No DOM.
 */

import { columnAt, columnLeft, niceTicks, requestColumns } from './scales.js';
import { isInView } from '../parts/standing.js';

/** @typedef {import('./scales.js').Columns} Columns */
/** @typedef {import('./surface.js').Size} Size */
/** @typedef {import('../timeline/presence.js').PresenceRun} PresenceRun */

/** How near: messages in a row, and its height in pixels. @typedef {{perRow: number, pixels: number}} RowScale */

/**
 * `body` from `top` to `bottom` of the surface; `offset`: pixels of rows above it; `strip`: x of the
 * kinds.
 * @typedef {{columns: Columns, scale: RowScale, count: number, rows: number, top: number, bottom: number,
 *   offset: number, strip: number, right: number}} PresenceShape
 */

export const STRIP_WIDTH = 9;
/** Room above the rows for compactions, and below them for names of requests. */
export const PRESENCE_EDGE = 24;
const TALLEST_ROW = 16;
const STEPS_NEARER = [1, 3, 7, 12, TALLEST_ROW];

/**
 * The scales to choose from: first the one that fits all messages, then nearer and nearer ones.
 * @param {number} count of messages
 * @param {number} height of the body
 * @returns {RowScale[]}
 */
export function rowScales(count, height) {
  const room = Math.max(1, Math.floor(height));
  const all = scaleToFit(count, room);
  const scales = [all];
  for (let per = all.perRow / 4; per > 1.5; per /= 4) scales.push({ perRow: Math.ceil(per), pixels: 1 });
  const least = all.perRow === 1 ? all.pixels * 1.3 : 0;
  for (const pixels of STEPS_NEARER) if (pixels > least) scales.push({ perRow: 1, pixels });
  return scales;
}

/**
 * The scale at which so many messages take all of the height.
 * @param {number} count
 * @param {number} height
 * @returns {RowScale}
 */
function scaleToFit(count, height) {
  const perRow = Math.max(1, Math.ceil(count / height));
  const rows = Math.max(1, Math.ceil(count / perRow));
  return { perRow, pixels: Math.min(TALLEST_ROW, height / rows) };
}

/** Up to so many messages in a row, all of the session is a picture; beyond, it is a line. */
const MOST_PER_ROW = 8;

/**
 * The scale to begin with: all messages, or those that the window's requests added.
 * @param {readonly RowScale[]} scales
 * @param {number} added messages
 * @param {number} height
 */
export function firstScale(scales, added, height) {
  if ((scales[0]?.perRow ?? 1) <= MOST_PER_ROW) return 0;
  const nearest = scales.findLastIndex(({ perRow, pixels }) => (added / perRow) * pixels <= height);
  return Math.max(0, nearest);
}

/**
 * @param {Size} size of the surface
 * @param {readonly [number, number]} window
 * @param {{count: number, scale: RowScale, offset: number}} messages
 * @returns {PresenceShape}
 */
export function presenceShape({ width, height }, [first, last], { count, scale, offset }) {
  const right = width - 8;
  // As wide as the longest number with its sign.
  const strip = 20 + 8.4 * Math.max(3, String(count).length);
  const left = strip + STRIP_WIDTH + 5;
  return {
    columns: requestColumns(first, last, left, right - left),
    scale,
    count,
    rows: Math.ceil(count / scale.perRow),
    top: PRESENCE_EDGE,
    bottom: height - PRESENCE_EDGE,
    offset,
    strip,
    right,
  };
}

/** The top of a row; it may lie outside of the body. @param {PresenceShape} shape @param {number} row */
export function rowTop({ top, offset, scale }, row) {
  return top - offset + row * scale.pixels;
}

/** First and last row of which something is seen. @param {PresenceShape} shape @returns {[number, number]} */
export function visibleRows({ offset, scale, top, bottom, rows }) {
  const first = Math.max(0, Math.floor(offset / scale.pixels));
  return [first, Math.min(rows - 1, Math.ceil((offset + bottom - top) / scale.pixels) - 1)];
}

/** First and last message of which something is seen. @param {PresenceShape} shape @returns {[number, number]} */
export function visibleMessages(shape) {
  const [first, last] = visibleRows(shape);
  const { perRow } = shape.scale;
  return [first * perRow, Math.min(shape.count, (last + 1) * perRow) - 1];
}

/** The messages of a row. @param {PresenceShape} shape @param {number} row @returns {[number, number]} */
export function messagesOfRow({ scale, count }, row) {
  return [row * scale.perRow, Math.min(count, (row + 1) * scale.perRow) - 1];
}

/**
 * The cell at a place: null outside of the rows. Next to the columns it is in the nearest one.
 * @param {PresenceShape} shape
 * @param {{x: number, y: number}} at
 * @returns {{row: number, request: number} | null}
 */
export function cellAt(shape, { x, y }) {
  if (y < shape.top || y >= shape.bottom) return null;
  const row = Math.floor((y - shape.top + shape.offset) / shape.scale.pixels);
  const request = columnAt(shape.columns, x);
  return row < 0 || row >= shape.rows || request < 0 ? null : { row, request };
}

/**
 * How far to scroll so that a message is seen, with some rows around it; as it is where it is seen.
 * @param {PresenceShape} shape
 * @param {number} message
 */
export function offsetToShow(shape, message) {
  const { scale, offset, top, bottom } = shape;
  const body = bottom - top;
  const y = Math.floor(message / scale.perRow) * scale.pixels;
  if (y >= offset && y + scale.pixels <= offset + body) return offset;
  return Math.max(0, y - body / 2);
}

/** Numbers to write with the rows. @param {PresenceShape} shape @returns {{message: number, y: number}[]} */
export function rowLabels(shape) {
  const [first, last] = visibleMessages(shape);
  const { perRow, pixels } = shape.scale;
  const seen = Math.max(1, last - first);
  const wanted = Math.max(1, Math.floor((shape.bottom - shape.top) / 34));
  const ticks = niceTicks(seen, wanted);
  const step = Math.max(1, (ticks[1] ?? seen) - (ticks[0] ?? 0));
  const labels = [];
  for (let message = Math.ceil(first / step) * step; message <= last; message += step) {
    const y = rowTop(shape, message / perRow) + (perRow === 1 ? pixels / 2 : 0);
    if (y >= shape.top + 2 && y <= shape.bottom - 2) labels.push({ message, y });
  }
  return labels;
}

/**
 * The box of messages `number` to `until` at requests `first` to `last`, as far as it is seen; null
 * where nothing of it is.
 * @param {PresenceShape} shape
 * @param {{number: number, until: number, first: number, last: number}} run
 * @returns {{x: number, y: number, width: number, height: number, row: number, rows: number} | null}
 */
export function boxOfRun(shape, { number, until, first, last }) {
  const [top, bottom] = visibleRows(shape);
  const { columns, scale } = shape;
  const row = Math.max(top, Math.floor(number / scale.perRow));
  const end = Math.min(bottom, Math.floor(until / scale.perRow));
  const [from, to] = [Math.max(first, columns.first), Math.min(last, columns.last)];
  if (row > end || from > to) return null;
  const x = columnLeft(columns, from);
  const y = rowTop(shape, row);
  return {
    x,
    y,
    width: columnLeft(columns, to + 1) - x,
    height: (end - row + 1) * scale.pixels,
    row,
    rows: end - row + 1,
  };
}

/** What a row of many messages says at a request. */
export const BIN_STATES = Object.freeze(['none', 'all', 'most', 'half', 'few', 'summarised', 'dropped']);

/**
 * For rows `firstRow` on, of `perRow` messages each, and every request of the window: an index in
 * `BIN_STATES`, row by row.
 * @param {readonly PresenceRun[]} runs
 * @param {{perRow: number, firstRow: number, rows: number, first: number, last: number}} grid
 * @returns {Uint8Array}
 */
export function binStates(runs, { perRow, firstRow, rows, first, last }) {
  const width = last - first + 2; // one more: a rectangle ends before the next request
  const sent = new Int32Array(rows * width);
  const summarised = new Int32Array(rows * width);
  const gone = new Int32Array(rows * width);
  const [top, bottom] = [firstRow * perRow, (firstRow + rows) * perRow - 1];
  for (const run of runs) {
    if (run.until < top || run.number > bottom) continue;
    const counted = isInView(run.what) ? sent : run.what === 'summarised' ? summarised : gone;
    const from = Math.max(run.number, top);
    const to = Math.min(run.until, bottom);
    for (let message = from; message <= to; ) {
      const row = Math.floor(message / perRow) - firstRow;
      const next = Math.min(to + 1, (row + firstRow + 1) * perRow);
      counted[row * width + run.first - first] += next - message;
      counted[row * width + run.last - first + 1] -= next - message;
      message = next;
    }
  }
  const states = new Uint8Array(rows * (width - 1));
  for (let row = 0; row < rows; row += 1) {
    let [inView, stoodFor, out] = [0, 0, 0];
    for (let column = 0; column < width - 1; column += 1) {
      const at = row * width + column;
      inView += sent[at] ?? 0;
      stoodFor += summarised[at] ?? 0;
      out += gone[at] ?? 0;
      states[row * (width - 1) + column] = binState(inView, stoodFor, out);
    }
  }
  return states;
}

/** @param {number} inView @param {number} stoodFor @param {number} out */
function binState(inView, stoodFor, out) {
  const all = inView + stoodFor + out;
  if (all === 0) return 0;
  if (inView === all) return 1;
  if (inView === 0) return stoodFor >= out ? 5 : 6;
  const share = inView / all;
  // A single message of hundreds must not vanish: few is more than none.
  return share > 0.6 ? 2 : share > 0.25 ? 3 : 4;
}

/**
 * Equal neighbours in rows of a grid as boxes; rows alike below each other are one.
 * @param {Uint8Array} states
 * @param {number} width
 * @returns {{state: number, column: number, columns: number, row: number, rows: number}[]}
 */
export function boxesOfStates(states, width) {
  /** @typedef {{state: number, column: number, columns: number, row: number, rows: number}} Box */
  /** @type {Box[]} */
  const boxes = [];
  /** @type {Map<number, Box>} by their first column, of the row before */
  let above = new Map();
  for (let row = 0; row * width < states.length; row += 1) {
    /** @type {Map<number, Box>} */
    const here = new Map();
    for (let column = 0; column < width; ) {
      const state = states[row * width + column] ?? 0;
      let end = column + 1;
      while (end < width && states[row * width + end] === state) end += 1;
      if (state !== 0) {
        let box = above.get(column);
        if (box?.state === state && box.columns === end - column) {
          box.rows += 1;
        } else {
          box = { state, column, columns: end - column, row, rows: 1 };
          boxes.push(box);
        }
        here.set(column, box);
      }
      column = end;
    }
    above = here;
  }
  return boxes;
}

/**
 * The brackets of summaries: from the first to the last message that each stands for, at the request
 * where it came in.
 * @param {readonly PresenceRun[]} runs
 * @param {number} first request of the window: what was summarised before has its bracket before
 * @returns {{request: number, number: number, until: number}[]}
 */
export function summaryBrackets(runs, first) {
  /** @type {Map<number, {request: number, number: number, until: number}>} */
  const brackets = new Map();
  for (const { what, first: request, number, until } of runs) {
    if (what !== 'summarised' || request <= first) continue;
    const bracket = brackets.get(request);
    if (bracket === undefined) {
      brackets.set(request, { request, number, until });
    } else {
      bracket.number = Math.min(bracket.number, number);
      bracket.until = Math.max(bracket.until, until);
    }
  }
  return [...brackets.values()];
}
