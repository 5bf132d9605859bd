/**
 * The numbers of the two charts: tokens by group for each request of a window, and for the whole
 * session the least and the greatest request of every pixel column.
 *
 * Five thousand requests on a thousand pixels, drawn one by one, are a comb. So the overview has an
 * envelope.
 */

import { SCREEN_GROUPS } from './groups.js';

/** @import { Timeline } from './timeline.js' */

/**
 * Requests `first` to `last`: `sums` has a row of `SCREEN_GROUPS.length` values for each, bottom
 * first; the other arrays have one value each, -1 where it is not known.
 * @typedef {{
 *   first: number, last: number, sums: Int32Array, beside: Int32Array, total: Int32Array,
 *   budget: Int32Array, cached: Int32Array,
 * }} River
 */

/**
 * `min` and `max` are totals (-1 in a column without requests); `cliff` is 1 in a column with the
 * first request after an applied compaction.
 * @typedef {{min: Int32Array, max: Int32Array, cliff: Uint8Array}} Envelope
 */

/** @param {Timeline} timeline @param {number} firstRequest @param {number} lastRequest @returns {River} */
export function riverOf(timeline, firstRequest, lastRequest) {
  const { requests } = timeline;
  const first = Math.max(0, firstRequest);
  const last = Math.min(lastRequest, requests.count - 1);
  const end = Math.max(first, last + 1);
  const width = SCREEN_GROUPS.length;
  const sums = new Int32Array((end - first) * width);
  for (let request = first; request < end; request++) {
    sums.set(timeline.sums(request), (request - first) * width);
  }
  const { beside, total, budget, cached } = requests;
  return {
    first,
    last,
    sums,
    beside: beside.slice(first, end),
    total: total.slice(first, end),
    budget: budget.slice(first, end),
    cached: cached.slice(first, end),
  };
}

/** @param {Timeline} timeline @param {number} columns how many pixel columns all requests share @returns {Envelope} */
export function envelopeOf(timeline, columns) {
  const { count, total } = timeline.requests;
  const min = new Int32Array(columns).fill(-1);
  const max = new Int32Array(columns).fill(-1);
  const cliff = new Uint8Array(columns);
  // With fewer requests than columns, a request fills several.
  for (let column = 0; count > 0 && column < columns; column++) {
    const first = Math.floor((column * count) / columns);
    const end = Math.max(first + 1, Math.floor(((column + 1) * count) / columns));
    for (let request = first; request < end; request++) {
      if (min[column] < 0 || total[request] < min[column]) min[column] = total[request];
      if (total[request] > max[column]) max[column] = total[request];
    }
  }
  for (const compaction of timeline.compactions) {
    if (compaction.number === 0) continue;
    const request = timeline.requestAt(compaction.position) + 1;
    if (request < count) cliff[Math.floor((request * columns) / count)] = 1;
  }
  return { min, max, cliff };
}
