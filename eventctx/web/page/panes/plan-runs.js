// What a compaction decided, as counts and runs of messages, from the columns of changes.

import { CHANGE_KINDS } from '../timeline/standing.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/** @typedef {{what: string, reason: number, count: number, runs: [number, number][]}} PlanPart */

/**
 * @typedef {object} CompactionEffect
 * @property {number} before the last request before it, -1 without one
 * @property {number} after the first request after it, -1 without one
 * @property {PlanPart[]} parts largest first
 * @property {number} kept messages from before it that the request after it shows whole
 */

/** @param {Timeline} timeline @param {number} index in the timeline's compactions @returns {CompactionEffect} */
export function compactionEffect(timeline, index) {
  const { changes, requests } = timeline;
  const { position } = timeline.compactions[index];
  const before = timeline.requestAt(position);
  const after = before + 1 < requests.count ? before + 1 : -1;
  /** @type {Map<string, PlanPart>} */
  const parts = new Map();
  for (let at = firstChangeAt(changes.position, position); changes.position[at] === position; at++) {
    const what = CHANGE_KINDS[changes.what[at]];
    const key = `${what} ${changes.reason[at]}`;
    const part = parts.get(key) ?? { what, reason: changes.reason[at], count: 0, runs: [] };
    parts.set(key, part);
    const [first, last] = [changes.first[at], changes.last[at]];
    part.count += last - first + 1;
    const run = part.runs.at(-1);
    if (run !== undefined && run[1] === first - 1) run[1] = last;
    else part.runs.push([first, last]);
  }
  const { position: added } = timeline.messages;
  const whole = after < 0 ? [] : timeline.view(after).filter((id) => id >= 0 && added[id] < position);
  return {
    before, after, kept: whole.length,
    parts: [...parts.values()].sort((a, b) => b.count - a.count),
  };
}

/** @param {ArrayLike<number>} positions in rising order @param {number} position */
function firstChangeAt(positions, position) {
  let low = 0;
  let high = positions.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (positions[middle] < position) low = middle + 1;
    else high = middle;
  }
  return low;
}
