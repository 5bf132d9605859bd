/** Where numbers are on a chart, and how they are written there. No DOM. */

import { shortTokens } from '../parts/numbers.js';

/**
 * Requests side by side, from `first` to `last`, each `step` wide, from `left` on. With `edges`, by
 * time: then a request is as wide as it took to the next, and `step` is what they are on average.
 * @typedef {{first: number, last: number, left: number, width: number, step: number, edges?: Float64Array}} Columns
 */

/** A few requests must not become bars as wide as a hand. */
const WIDEST_COLUMN = 56;

/**
 * @param {number} first
 * @param {number} last before `first`: no request
 * @param {number} left
 * @param {number} width
 * @returns {Columns}
 */
export function requestColumns(first, last, left, width) {
  const count = Math.max(0, last - first + 1);
  const step = count === 0 ? 0 : Math.min(WIDEST_COLUMN, Math.max(0, width) / count);
  return { first, last, left, width: step * count, step };
}

/** The left edge of a request. @param {Columns} columns @param {number} request */
export function columnLeft({ first, last, left, step, edges }, request) {
  if (edges === undefined) return left + (request - first) * step;
  return edges[Math.min(last + 1, Math.max(first, request)) - first] ?? left;
}

/** @param {Columns} columns @param {number} request */
export function columnWidth(columns, request) {
  return columnLeft(columns, request + 1) - columnLeft(columns, request);
}

/** @param {Columns} columns @param {number} request */
export function columnMiddle(columns, request) {
  return columnLeft(columns, request) + columnWidth(columns, request) / 2;
}

/**
 * The same requests by time, over all of the width; the same columns where no time passes.
 * @param {Columns} columns
 * @param {ArrayLike<number>} times of each request, by its index, in ms
 * @param {number} width
 * @returns {Columns}
 */
export function columnsByTime(columns, times, width) {
  const { first, last, left } = columns;
  const count = last - first + 1;
  if (!timePasses(times, [first, last]) || width <= 0) return columns;
  const from = times[first] ?? 0;
  // How long the last one took is not known: it has the room of an average one.
  const room = width - Math.min(WIDEST_COLUMN, width / count);
  const edges = new Float64Array(count + 1);
  let latest = from;
  for (let at = 0; at < count; at += 1) latest = Math.max(latest, times[first + at] ?? 0);
  const scale = room / (latest - from);
  let before = 0;
  for (let at = 0; at < count; at += 1) {
    // Clocks are set back now and then; requests are not.
    before = Math.max(before, (times[first + at] ?? 0) - from);
    edges[at] = left + before * scale;
  }
  edges[count] = left + width;
  return { ...columns, width, step: width / count, edges };
}

/**
 * Whether the requests of a window can stand by time: two of them have times that differ.
 * @param {ArrayLike<number>} times
 * @param {readonly [number, number]} window
 */
export function timePasses(times, [first, last]) {
  const from = times[first] ?? 0;
  if (!(from > 0)) return false;
  for (let request = first + 1; request <= last; request += 1) if ((times[request] ?? 0) > from) return true;
  return false;
}

/**
 * The request at a place, the nearest one outside of the chart; -1 when there is none at all.
 * @param {Columns} columns
 * @param {number} x
 */
export function columnAt({ first, last, left, step, edges }, x) {
  if (last < first || step === 0) return -1;
  if (edges !== undefined) {
    const behind = edges.findIndex((edge) => edge > x);
    return behind < 0 ? last : first + Math.max(0, behind - 1);
  }
  return Math.min(last, Math.max(first, first + Math.floor((x - left) / step)));
}

/**
 * Round numbers from 0 to `most`, about `wanted` of them.
 * @param {number} most
 * @param {number} wanted
 * @returns {number[]}
 */
export function niceTicks(most, wanted) {
  if (!(most > 0) || wanted < 1) return [0];
  const rough = most / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  // The smallest round step that is not too small; never one beyond the end, where nothing would stand.
  const fitting = [10, 5, 2, 1, 0.5].filter((one) => one * power <= most);
  const factor = fitting.findLast((one) => one * power >= rough * 0.999) ?? fitting[0] ?? 1;
  const step = Math.max(1, factor * power);
  const ticks = [];
  for (let tick = 0; tick <= most; tick += step) ticks.push(tick);
  return ticks;
}

/** Tokens next to a line of the chart: `20k`, not `20.0k`. @param {number} tokens */
export function tickText(tokens) {
  return shortTokens(tokens).replace('.0', '');
}

/**
 * Which of the wanted labels stand without touching each other; earlier ones win.
 * @template {{x: number, width: number}} Label
 * @param {readonly Label[]} labels in the order of their importance; `x` is their middle
 * @param {number} gap
 * @param {number} left
 * @param {number} right
 * @returns {Label[]} from left to right
 */
export function labelsThatFit(labels, gap, left, right) {
  /** @type {Label[]} */
  const placed = [];
  for (const label of labels) {
    const half = label.width / 2;
    if (label.x - half < left || label.x + half > right) continue;
    const at = placed.findIndex((other) => other.x > label.x);
    const place = at < 0 ? placed.length : at;
    const [before, after] = [placed[place - 1], placed[place]];
    if (before && before.x + before.width / 2 + gap > label.x - half) continue;
    if (after && label.x + half + gap > after.x - after.width / 2) continue;
    placed.splice(place, 0, label);
  }
  return placed.sort((a, b) => a.x - b.x);
}

/**
 * The requests that an axis names first: those that begin a turn, then round steps between.
 * @param {Columns} columns
 * @param {ArrayLike<number>} turns turn of each request, by its index
 * @returns {number[]} in the order of their importance
 */
export function requestsToName({ first, last }, turns) {
  /** @type {number[]} */
  const starts = [];
  /** @type {number[]} */
  const others = [];
  for (let request = first; request <= last; request += 1) {
    const begins = request === first || turns[request] !== turns[request - 1];
    (begins && request !== first ? starts : others).push(request);
  }
  // Halving leaves the starts of turns evenly spread when not all of them fit.
  return [first, ...spread(starts), ...spread(others.slice(1))].filter((one) => one <= last);
}

/**
 * The same items, so ordered that every beginning of the list is spread over all of them.
 * @param {readonly number[]} items
 * @returns {number[]}
 */
function spread(items) {
  const ordered = [];
  let stride = 1;
  while (stride < items.length) stride *= 2;
  const taken = new Set();
  for (; stride >= 1; stride /= 2) {
    for (let at = 0; at < items.length; at += stride) {
      if (taken.has(at)) continue;
      taken.add(at);
      ordered.push(/** @type {number} */ (items[at]));
    }
  }
  return ordered;
}
