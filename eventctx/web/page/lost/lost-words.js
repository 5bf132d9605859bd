/** Why a message is not in view, as sentences of a few words. */

import { compactionLabel, triggerWords } from '../panes/why-words.js';
import { counted, tokensText } from '../parts/numbers.js';
import { standingMeaning } from '../parts/standing.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('./lost-rows.js').LostRow} LostRow */
/** @typedef {Timeline['compactions'][number]} Compaction */

/**
 * What became of the message, with the rule where it says more: `Left out by a compaction: an old
 * tool round or message, dropped to reach the target (old_round).`
 *
 * @param {Pick<LostRow, 'what' | 'reason'>} row
 */
export function reasonText({ what, reason }) {
  const meaning = standingMeaning(what);
  const sentence = `${meaning[0]?.toUpperCase() ?? ''}${meaning.slice(1)}`;
  const rule = reason === null || SAID_ALREADY.has(reason.code) ? '' : reason.rule;
  return rule === '' ? `${sentence}.` : `${sentence}: ${rule} (${reason?.code}).`;
}

/** Reasons that only repeat what became of the message. */
const SAID_ALREADY = new Set(['summary', 'imported']);

/**
 * `Compaction 2: the threshold was reached; 81,315 → ~15,940 tokens`.
 *
 * @param {Timeline} timeline
 * @param {number} index
 */
export function compactionSummary(timeline, index) {
  const one = timeline.compactions[index];
  const label = compactionLabel(one);
  const asked = one.requested_by === null ? '' : `, asked for by ${one.requested_by}`;
  return `${label[0].toUpperCase()}${label.slice(1)}: ${triggerWords(one.trigger)}${asked}; ${sizesText(one)}`;
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
