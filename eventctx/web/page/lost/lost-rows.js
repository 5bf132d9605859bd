/**
 * A person's messages that a request was not sent, and what the columns know about each: what became
 * of it, by which change and rule, the request where it fell, and which text stands for it.
 */

import { extraEntries, standsFor } from '../timeline/entries.js';
import { HUMAN_KIND } from '../timeline/groups.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {ReturnType<Timeline['entry']>} Entry */

/**
 * `compaction` is an index in the timeline's; `fell` the first request without it, -1 if none ever
 * had it before; `standsIn` the entries of the view that stand for it; `demands` how many there are.
 *
 * @typedef {{number: number, what: string, reason: {code: string, rule: string} | null,
 *   compaction: number, position: number | null, fell: number, standsIn: Entry[],
 *   demands: number}} LostRow
 */

/**
 * Messages with demands first, each in order of their numbers.
 *
 * @param {Timeline} timeline
 * @param {number} request
 * @returns {LostRow[]}
 */
export function lostRows(timeline, request) {
  if (request < 0) return [];
  const inserted = extraEntries(timeline, request);
  const { reason, position } = timeline.changes;
  const rows = timeline.wordsOutOfView(request).map(({ number, change, compaction, fell }) => ({
    number,
    what: timeline.standing(number, request).what,
    reason: change >= 0 && reason[change] >= 0 ? timeline.reasons[reason[change]] : null,
    compaction,
    position: change >= 0 ? position[change] : null,
    fell,
    standsIn: inserted.filter((entry) => standsFor(entry, number)),
    demands: timeline.messages.demands[number],
  }));
  return [...rows.filter((row) => row.demands > 0), ...rows.filter((row) => row.demands === 0)];
}

/**
 * The numbers of a person's messages that a request was sent in part only.
 *
 * @param {Timeline} timeline
 * @param {number} request
 * @returns {number[]}
 */
export function shortenedWords(timeline, request) {
  if (request < 0) return [];
  return extraEntries(timeline, request)
    .filter(({ kind, number }) => kind === 'shortened' && isWordOfPerson(timeline, number))
    .map(({ number }) => /** @type {number} */ (number))
    .sort((a, b) => a - b);
}

/** @param {Timeline} timeline @param {number | null} number */
function isWordOfPerson(timeline, number) {
  return number !== null && timeline.messages.kind[number] === HUMAN_KIND;
}
