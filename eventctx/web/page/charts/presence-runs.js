/**
 * Rectangles of the presence map, and, where a row stands for many messages, what became of most of
 * them. No DOM.
 */

import { isInView } from '../parts/standing.js';

/** @typedef {import('../timeline/presence.js').PresenceRun} PresenceRun */

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
