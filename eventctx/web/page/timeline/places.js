/**
 * Where one is in a session: the request at a position, its turn, its name, what lies between.
 */

import { lastNotAbove } from './columns.js';

/** @import { CompactionEntry } from './packing.js' */
/** @import { Timeline } from './timeline.js' */

/**
 * The last request at or before a position; -1 if there is none.
 * @param {Timeline} timeline
 * @param {number} position
 */
export function requestNotAfter(timeline, position) {
  return lastNotAbove(timeline.requests.position, position);
}

/**
 * A request's name as the command line writes it: `2.3`, or `@48` outside a turn or an iteration.
 * @param {Timeline} timeline
 * @param {number} request
 */
export function requestName(timeline, request) {
  const { turn, iteration, position } = timeline.requests;
  if (turn[request] < 0 || iteration[request] < 0) return `@${position[request]}`;
  return `${turn[request]}.${iteration[request]}`;
}

/**
 * The applied compactions after request `from` and before request `to`.
 * @param {Timeline} timeline
 * @param {number} from
 * @param {number} to
 * @returns {CompactionEntry[]}
 */
export function appliedBetween(timeline, from, to) {
  const { position } = timeline.requests;
  const start = from < 0 ? -1 : position[from];
  const end = to < 0 ? -1 : position[to];
  return timeline.compactions.filter(
    (one) => one.number > 0 && one.position > start && one.position < end,
  );
}
