/**
 * A person's words that a request does not show, each with what took it out and since when.
 */

import { HUMAN_KIND } from './groups.js';
import { IN_VIEW_BELOW, STANDINGS, STANDING_NOT_ADDED } from './standing.js';

/** @import { Timeline } from './timeline.js' */

/**
 * `change` and `compaction` are places in the timeline's lists, -1 without one; `fell` is the first
 * request of those without it up to this one.
 * @typedef {{
 *   number: number, standing: string, change: number, compaction: number, fell: number,
 * }} WordsOut
 */

/**
 * @param {Timeline} timeline
 * @param {number} request
 * @returns {WordsOut[]}
 */
export function wordsOut(timeline, request) {
  const { changeTable, messages, requests } = timeline;
  const standings = timeline.standings(request);
  const changes = changeTable.before(requests.position[request]);
  /** @type {WordsOut[]} */
  const found = [];
  for (let number = 0; number < messages.count; number++) {
    const standing = standings[number];
    if (messages.kind[number] !== HUMAN_KIND) continue;
    if (standing < IN_VIEW_BELOW || standing === STANDING_NOT_ADDED) continue;
    const { change } = changeTable.tookOut(number, changes);
    found.push({
      number,
      standing: STANDINGS[standing],
      change,
      compaction: change < 0 ? -1 : changeTable.compaction.space[change],
      fell: fellAt(timeline, number, request, changes),
    });
  }
  return found;
}

/**
 * @param {Timeline} timeline
 * @param {number} number
 * @param {number} request
 * @param {number} changes
 */
function fellAt(timeline, number, request, changes) {
  const { changeTable } = timeline;
  const change = changeTable.fellBy(number, changes);
  // Its round lost the call: no change tells when, so the views are looked at.
  if (change < 0) return timeline.absentSince(number, request);
  return timeline.requestAt(changeTable.position.space[change]) + 1;
}
