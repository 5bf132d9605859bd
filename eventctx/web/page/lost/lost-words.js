/**
 * A person's messages that a request was not sent: what the columns know about each, and why, as
 * sentences of a few words.
 */

import { capitalised } from '../panes/why-words.js';
import { counted } from '../parts/numbers.js';
import { standingMeaning } from '../parts/standing.js';
import { extraEntries, standsFor } from '../timeline/entries.js';
import { HUMAN_KIND } from '../timeline/groups.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/**
 * What became of the message, with the rule where it says more: `Left out by a compaction: an old
 * tool round or message, dropped to reach the target (old_round).`
 *
 * @param {Pick<LostRow, 'what' | 'reason'>} row
 */
export function reasonText({ what, reason }) {
  const sentence = capitalised(standingMeaning(what));
  const rule = reason === null || SAID_ALREADY.has(reason.code) ? '' : reason.rule;
  return rule === '' ? `${sentence}.` : `${sentence}: ${rule} (${reason?.code}).`;
}

/** Reasons that only repeat what became of the message. */
const SAID_ALREADY = new Set(['summary', 'imported']);

/**
 * Whether the words of a demand stand in a text, whatever its line breaks and blanks.
 *
 * @param {string} demand
 * @param {string[]} texts
 */
function standsWordForWord(demand, texts) {
  const wanted = plainWords(demand);
  return texts.some((text) => plainWords(text).includes(wanted));
}

/**
 * What the texts that stand for a message hold of its demands.
 *
 * @param {string[]} demands
 * @param {string[][]} standsIn the texts of each message that stands for it
 * @returns {string}
 */
export function keptInSummary(demands, standsIn) {
  if (demands.length === 0 || standsIn.length === 0) return '';
  const texts = standsIn.flat();
  const kept = demands.filter((demand) => standsWordForWord(demand, texts)).length;
  const [it, holds] = standsIn.length === 1 ? ['it', 'it holds'] : ['them', 'they hold'];
  if (demands.length === 1) {
    return kept === 1 ? `${holds} the demand word for word` : `the demand is not in ${it} word for word`;
  }
  const whole = counted(demands.length, 'demand');
  if (kept === demands.length) return `${holds} all ${whole} word for word`;
  return `${holds} ${kept === 0 ? 'none' : kept} of the ${whole} word for word`;
}

/** @param {string} text */
function plainWords(text) {
  return text.replaceAll('’', "'").replace(/\s+/g, ' ').trim().toLowerCase();
}

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
 * What became of each message, by which change and rule, the request where it fell, and which text
 * stands for it. Messages with demands come first, each in order of their numbers.
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
