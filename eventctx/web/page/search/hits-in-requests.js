// Where found messages are in a session: the request in which each was first in view.

import { lastNotAbove } from '../timeline/columns.js';
import { shownNumber } from '../timeline/entries.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/** A message that was not in view at once may never have been: so many requests are asked. */
const REQUESTS_ASKED = 64;

/**
 * The first request that was sent a message, whole or in part; -1 if none was.
 *
 * @param {Timeline} timeline
 * @param {number} number
 */
export function firstRequestWith(timeline, number) {
  const { last, count } = timeline.requests;
  // `last` only grows, so the first request that could hold the message is found by halves.
  const from = lastNotAbove(last, number - 1) + 1;
  for (let request = from; request < Math.min(count, from + REQUESTS_ASKED); request++) {
    if (isShown(timeline, number, request)) return request;
  }
  return -1;
}

/**
 * Whether a request's view shows a message. A standing would be worked out for all messages at once,
 * which is too much for each of a thousand hits.
 *
 * @param {Timeline} timeline
 * @param {number} number
 * @param {number} request
 */
function isShown(timeline, number, request) {
  const view = timeline.view(request);
  return view.includes(number) || view.some((id) => id < 0 && shownNumber(timeline.extras, id) === number);
}

/**
 * The requests of found messages, each once, in order: ticks on the river.
 *
 * @param {Timeline} timeline
 * @param {Iterable<number>} numbers
 * @returns {number[]}
 */
export function requestsOfHits(timeline, numbers) {
  const found = new Set(Array.from(numbers, (number) => firstRequestWith(timeline, number)));
  found.delete(-1);
  return [...found].sort((a, b) => a - b);
}
