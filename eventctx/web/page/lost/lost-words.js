/** Why a message is not in view, as sentences of a few words. */

import { counted, tokensText } from '../parts/numbers.js';
import { standingMeaning } from '../parts/standing.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('./lost-rows.js').LostRow} LostRow */
/** @typedef {Timeline['compactions'][number]} Compaction */

/** As `eventctx why` words them. @type {Readonly<Record<string, string>>} */
const TRIGGER_WORDS = {
  threshold: 'the threshold was reached',
  budget: 'the budget was exceeded',
  max_messages: 'there were too many messages',
  manual: 'made on demand',
  imported: 'made by the program whose file was imported',
};

/**
 * What became of the message, with the rule in words: `dropped: older than the messages kept`.
 *
 * @param {LostRow} row
 */
export function reasonText({ what, reason }) {
  const meaning = standingMeaning(what);
  if (reason === null || reason.rule === '') return meaning;
  return `${meaning} · ${reason.code}: ${reason.rule}`;
}

/**
 * `compaction 2, in request 7.4: the threshold was reached; 81,315 → ~15,940 tokens`.
 *
 * @param {Timeline} timeline
 * @param {number} index
 */
export function compactionText(timeline, index) {
  const one = timeline.compactions[index];
  const by = TRIGGER_WORDS[one.trigger] ?? one.trigger;
  const asked = one.requested_by === null ? '' : ` (${one.requested_by})`;
  return `${compactionName(one)}: ${by}${asked}; ${sizesText(one)}`;
}

/** @param {Compaction} one */
export function compactionName(one) {
  return one.number > 0 ? `compaction ${one.number}` : `the compaction at @${one.position}`;
}

/** `81,315 → ~15,940 tokens`. @param {Compaction} one */
export function sizesText({ before, before_estimated, after, after_estimated }) {
  return `${tokensText(before, before_estimated)} → ${tokensText(after, after_estimated)} tokens`;
}

/**
 * Whether the words of a demand stand in a text, whatever its line breaks and blanks.
 *
 * @param {string} demand
 * @param {string[]} texts
 */
export function standsWordForWord(demand, texts) {
  const wanted = plainWords(demand);
  return texts.some((text) => plainWords(text).includes(wanted));
}

/**
 * What the texts that stand for a message hold of its demands.
 *
 * @param {string[]} demands
 * @param {string[]} texts of the summaries
 * @returns {string}
 */
export function keptInSummary(demands, texts) {
  if (demands.length === 0) return '';
  const kept = demands.filter((demand) => standsWordForWord(demand, texts)).length;
  if (demands.length === 1) {
    return kept === 1 ? 'it holds the demand word for word' : 'the demand is not in it word for word';
  }
  const whole = counted(demands.length, 'demand');
  if (kept === demands.length) return `it holds all ${whole} word for word`;
  return `it holds ${kept === 0 ? 'none' : kept} of the ${whole} word for word`;
}

/** @param {string} text */
function plainWords(text) {
  return text.replaceAll('’', "'").replace(/\s+/g, ' ').trim().toLowerCase();
}
