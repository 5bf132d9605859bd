/** What a session's columns tell of how it is known: pure counts and lists, for the integrity screen. */

import { AROUND, aroundText } from '../compare/view-pairs.js';
import { countText } from '../parts/numbers.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/** In the order of their codes, each with what it means, and what it is when its digest holds. */
export const KNOWN_MEANINGS = /** @type {const} */ ([
  ['observed', 'The program recorded what it sent.', 'verified'],
  ['prepared', 'Prepared by eventctx, recorded before it left.', 'verified'],
  ['reconstructed', 'Rebuilt from the imported file; the real request was not saved. Its digest is the importer’s, so it can be consistent, not verified.', 'consistent'],
]);

/**
 * What equal digests prove: `62 verified`, `66 consistent`, or both.
 *
 * @param {readonly number[]} counts as of `requestsByKnown`
 * @returns {string}
 */
export function provenText(counts) {
  const words = /** @type {const} */ (['verified', 'consistent']).map((word) => {
    const count = counts.reduce((sum, one, code) => sum + (KNOWN_MEANINGS[code][2] === word ? one : 0), 0);
    return count === 0 ? '' : `${countText(count)} ${word}`;
  });
  return words.filter(Boolean).join(', ');
}

/**
 * How many requests are known in which way, in the order of `KNOWN_MEANINGS`.
 *
 * @param {Timeline} timeline
 * @param {number} [first] only so many of the first ones
 * @returns {number[]}
 */
export function requestsByKnown(timeline, first = timeline.requests.count) {
  const counts = KNOWN_MEANINGS.map(() => 0);
  for (let request = 0; request < first; request++) counts[timeline.requests.known[request]]++;
  return counts;
}

/** @typedef {{request: number, what: typeof AROUND[number], before: string | null, after: string}} AroundChange */

/**
 * Each request in which the model, the budget, or the size of system prompt or tool definitions is
 * another than when it was last known. `before` is null for the first that is known.
 *
 * @param {Timeline} timeline
 * @returns {AroundChange[]}
 */
export function changesOverRequests(timeline) {
  const { requests } = timeline;
  /** @type {AroundChange[]} */
  const found = [];
  for (const what of AROUND) {
    const column = requests[what];
    let known = -1;
    for (let request = 0; request < requests.count; request++) {
      const value = column[request];
      if (value < 0 || value === known) continue;
      const before = known < 0 ? null : aroundText(timeline, what, known);
      found.push({ request, what, before, after: aroundText(timeline, what, value) });
      known = value;
    }
  }
  return found.sort((a, b) => a.request - b.request);
}

/**
 * The requests that began differently than the one before, by reason, the most frequent first; last those of which a
 * cache served less and no record tells why.
 *
 * @param {Timeline} timeline
 * @returns {[string, number[]][]}
 */
export function breaksByReason(timeline) {
  /** @type {Map<string, number[]>} */
  const found = new Map();
  timeline.requests.breaks.forEach((codes, request) => {
    for (const code of codes.split(',').filter(Boolean)) found.set(code, [...(found.get(code) ?? []), request]);
  });
  const cache = timeline.losses.filter(({ kind }) => kind === 'cache').map(({ position }) => timeline.requestAt(position));
  const recorded = [...found].sort(([, one], [, other]) => other.length - one.length);
  return cache.length === 0 ? recorded : [...recorded, ['inferred: the cache served less', cache]];
}

/**
 * Requests with messages that were added on the way to the model, that did not arrive, or of which
 * the host does not tell what it added.
 *
 * @param {Timeline} timeline
 */
export function changedOnTheWay(timeline) {
  const { additions, missing, floor } = timeline.requests;
  const above = (/** @type {ArrayLike<number>} */ column) =>
    Array.from(column).reduce((count, value) => count + (value > 0 ? 1 : 0), 0);
  const untold = additions.reduce((count, value) => count + (value < 0 ? 1 : 0), 0);
  return { additions: above(additions), missing: above(missing), floor: above(floor), untold };
}
