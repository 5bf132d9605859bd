/** Where everything of the river stands: a pure layout, so that a test can read it. */

import { columnLeft, columnsByTime, columnWidth, niceTicks, requestColumns } from './scales.js';

/** @typedef {import('./scales.js').Columns} Columns */
/** @typedef {import('./surface.js').Size} Size */

export const AXIS_WIDTH = 52;
const RIGHT_EDGE = 12;
const MARKS_HEIGHT = 25;
const KNOWN_HEIGHT = 5;
const NAMES_HEIGHT = 20;
const CACHE_HEIGHT = 26;

/**
 * From top to bottom: marks, the stacks from `top` to `base`, how each request is known, names,
 * the share read from cache. `most`: tokens at `top`.
 * @typedef {{columns: Columns, top: number, base: number, known: number, names: number,
 *   cacheTop: number, cacheBase: number, most: number, ticks: number[], right: number}} RiverShape
 */

/**
 * @param {Size} size
 * @param {readonly [number, number]} window
 * @param {number} most
 * @param {boolean} hasCache whether any request of the session says what was read from cache
 * @param {ArrayLike<number> | null} [times] of the requests, where they stand by time
 * @returns {RiverShape}
 */
export function riverShape({ width, height }, [first, last], most, hasCache, times = null) {
  const cacheBase = height - 4;
  // Where no provider says it, the stacks have the room of the lane.
  const cacheTop = hasCache ? cacheBase - CACHE_HEIGHT + 6 : cacheBase;
  const names = cacheTop - 6 - NAMES_HEIGHT;
  const known = names - KNOWN_HEIGHT - 1;
  const base = known - 3;
  const top = MARKS_HEIGHT;
  const room = width - AXIS_WIDTH - RIGHT_EDGE;
  const even = requestColumns(first, last, AXIS_WIDTH, room);
  const columns = times === null ? even : columnsByTime(even, times, room);
  const ticks = niceTicks(most, Math.max(1, Math.floor((base - top) / 44)));
  return { columns, top, base, known, names, cacheTop, cacheBase, most, ticks, right: width - RIGHT_EDGE };
}

/** @param {RiverShape} shape @param {number} tokens */
export function tokensToY({ top, base, most }, tokens) {
  return base - (base - top) * Math.min(1, Math.max(0, tokens) / most);
}

/**
 * The tokens at the top. All of the session, so that the scale stays as the window moves; unless the
 * window's requests were then less than half as high. A budget that would flatten them is left out.
 * @param {{total: ArrayLike<number>, budget: ArrayLike<number>, count: number}} requests
 * @param {readonly [number, number]} window
 */
export function riverTop({ total, budget, count }, [first, last]) {
  let [all, here, limit] = [0, 0, 0];
  for (let request = 0; request < count; request += 1) all = Math.max(all, total[request] ?? 0);
  for (let request = first; request <= last; request += 1) {
    here = Math.max(here, total[request] ?? 0);
    limit = Math.max(limit, budget[request] ?? 0);
  }
  const most = all > here * 2 && here > 0 ? here : all;
  const withBudget = limit <= most * 1.6 ? Math.max(most, limit) : most;
  return Math.max(1, withBudget * 1.04);
}

/**
 * The bands of a request from the bottom of its stack: tokens at the top of each.
 * @param {ArrayLike<number>} bands
 * @returns {number[]}
 */
export function stackTops(bands) {
  const tops = [];
  let sum = 0;
  for (let band = 0; band < bands.length; band += 1) {
    // What is sent with the messages can be below 0, where an estimate of them was too high.
    sum += Math.max(0, bands[band] ?? 0);
    tops.push(sum);
  }
  return tops;
}

/**
 * Left edge and width of a request's bar: with a gap between bars that are wide enough for one.
 * @param {Columns} columns
 * @param {number} request
 * @param {(x: number) => number} sharp to the grid of the screen
 * @returns {[x: number, width: number]}
 */
export function barOf(columns, request, sharp) {
  const gap = columnWidth(columns, request) >= 6 ? 1 : 0;
  const left = sharp(columnLeft(columns, request));
  return [left, Math.max(0.5, sharp(columnLeft(columns, request + 1)) - left - gap)];
}

/**
 * Compactions before one request: `numbers` of those that were applied, `tried` others.
 * @typedef {{request: number, numbers: number[], tried: number}} Cliff
 */

/**
 * @param {readonly {position: number, number: number}[]} compactions in order of position
 * @param {(position: number) => number} requestAt the last request at or before a position
 * @returns {Cliff[]}
 */
export function cliffsOf(compactions, requestAt) {
  /** @type {Cliff[]} */
  const cliffs = [];
  for (const { position, number } of compactions) {
    // What a compaction did shows first in the request after it.
    const request = requestAt(position) + 1;
    let cliff = cliffs.at(-1);
    if (cliff?.request !== request) {
      cliff = { request, numbers: [], tried: 0 };
      cliffs.push(cliff);
    }
    if (number > 0) cliff.numbers.push(number);
    else cliff.tried += 1;
  }
  return cliffs;
}

/** `3`, or `3–5` for several before one request; empty when none was applied. @param {Cliff} cliff */
export function cliffLabel({ numbers }) {
  const [first, last] = [numbers[0], numbers.at(-1)];
  if (first === undefined) return '';
  return first === last ? String(first) : `${first}–${last}`;
}

/**
 * Cliffs with a place for their mark; marks that would cover one another become one.
 * @param {readonly Cliff[]} cliffs
 * @param {(request: number) => number} xOf
 * @param {number} room
 * @returns {{x: number, cliff: Cliff}[]}
 */
export function cliffMarks(cliffs, xOf, room) {
  /** @type {{x: number, cliff: Cliff}[]} */
  const marks = [];
  for (const cliff of cliffs) {
    const x = xOf(cliff.request);
    const before = marks.at(-1);
    if (before && x - before.x < room) {
      const { request, numbers, tried } = before.cliff;
      before.cliff = { request, numbers: [...numbers, ...cliff.numbers], tried: tried + cliff.tried };
    } else {
      marks.push({ x, cliff });
    }
  }
  return marks;
}
