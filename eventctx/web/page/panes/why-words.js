// Why a message is in a request or not, in plain words, from the columns alone.

import { standingAt, standingSentence } from '../parts/standing.js';
import { counted, tokensText, utcText } from '../parts/numbers.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/** @typedef {{label: string, text: string, message?: number, position?: number}} WhyFact */

/** The reason of all that an importer found left out: it names no rule. */
export const IMPORTED = 'imported';

/**
 * `old_round: an old tool round, dropped to reach the target`; nothing where no rule is known.
 * @param {Timeline} timeline
 * @param {number} reason
 */
export function ruleText(timeline, reason) {
  if (reason < 0) return '';
  const { code, rule } = timeline.reasons[reason];
  return code === IMPORTED ? '' : `${code}: ${rule}`;
}

/**
 * One sentence: what became of the message, where, and why.
 * @param {Timeline} timeline
 * @param {number} number
 * @param {number} request
 * @returns {string}
 */
export function whySentence(timeline, number, request) {
  const { what, change } = standingAt(timeline, number, request);
  const name = `request ${timeline.name(request)}`;
  if (what === 'not_added') return `Not there yet: it was added after ${name}.`;
  const why = changeWords(timeline, change);
  switch (what) {
    case 'whole':
      return `Sent in ${name}, whole. ${stayWords(timeline, number, request)}`;
    case 'shortened':
      return `Sent in ${name}, but shortened${why}.`;
    case 'stripped':
      return `Sent in ${name}, without its thinking${why}.`;
    case 'partial':
      return `Sent in ${name}, without the results in it whose calls are not there.`;
    default:
      return `${standingSentence(what)}${why}.`;
  }
}

/**
 * What else is known of it, a line each.
 * @param {Timeline} timeline
 * @param {number} number
 * @param {number} request
 * @returns {WhyFact[]}
 */
export function whyFacts(timeline, number, request) {
  const { messages, changes, requests } = timeline;
  const { what, change, extra } = standingAt(timeline, number, request);
  /** @type {WhyFact[]} */
  const facts = [];
  const compaction = change < 0 ? -1 : changes.compaction[change];
  if (compaction >= 0) facts.push({ label: 'compaction', text: compactionSummary(timeline, compaction, true) });
  if (change >= 0 && changes.reason[change] >= 0) {
    const { code, rule } = timeline.reasons[changes.reason[change]];
    const text = code === IMPORTED ? 'not known: the imported file does not tell it' : `${code}: ${rule || 'a code that this release does not know'}`;
    facts.push({ label: 'rule', text });
  }
  if (extra !== null && extra !== undefined) {
    const shown = timeline.entry(extra).tokens;
    facts.push({ label: 'size', text: `${tokensText(messages.tokens[number], true)} → ${tokensText(shown, true)} tokens` });
  }
  if (change >= 0 && changes.into[change] >= 0) {
    const message = changes.into[change];
    const text = what === 'merged' ? `message #${message}, which begins as it does` : `the provider's summary in message #${message}`;
    facts.push({ label: 'instead', text, message });
  }
  const sentIn = lastRequestBefore(timeline, number, request);
  if (change >= 0 && sentIn !== null && what !== 'shortened' && what !== 'stripped') {
    facts.push({ label: 'last sent', text: `in request ${timeline.name(sentIn)}`, position: requests.position[sentIn] });
  }
  const turn = messages.turn[number];
  facts.push({
    label: 'added',
    text: `@${messages.position[number]}${turn < 0 ? '' : `, in turn ${turn}`}, ${utcText(messages.time[number])}`,
  });
  if (messages.demands[number] > 0) {
    facts.push({ label: 'holds', text: `${counted(messages.demands[number], 'demand')} of a person` });
  }
  return facts;
}

/** ` at compaction 2 before request 2.3: the rule`. @param {Timeline} timeline @param {number} change */
function changeWords(timeline, change) {
  if (change < 0) return '';
  const { compaction, reason, position } = timeline.changes;
  const next = timeline.requestAt(position[change]) + 1;
  const before = next < timeline.requests.count ? `, before request ${timeline.name(next)}` : '';
  const one = compaction[change] < 0 ? null : timeline.compactions[compaction[change]];
  const at = one === null ? ` at @${position[change]}${before}` : ` at ${compactionLabel(one)}${before}`;
  const given = reason[change] < 0 ? null : timeline.reasons[reason[change]];
  const rule = given === null || given.code === IMPORTED ? '' : given.rule;
  return rule === '' ? at : `${at}: ${rule}`;
}

/** @param {{number: number, position: number}} one */
export function compactionLabel(one) {
  return one.number > 0 ? `compaction ${one.number}` : `the compaction at @${one.position}`;
}

/** @param {Timeline} timeline @param {number} number @param {number} request */
function stayWords(timeline, number, request) {
  const plan = timeline.requests.plan[request];
  if (plan < 0) return 'No compaction is in force, so nothing is left out.';
  const one = timeline.compactions[plan];
  return timeline.messages.position[number] > one.position
    ? `It was added after ${compactionLabel(one)}, the last one.`
    : `${one.number > 0 ? `Compaction ${one.number}` : 'The last compaction'} kept it.`;
}

/** @type {Readonly<Record<string, string>>} */
const WHY_TRIGGERS = {
  threshold: 'the threshold was reached',
  budget: 'the budget was exceeded',
  max_messages: 'there were too many messages',
  manual: 'on demand',
  imported: 'made by the program that was recorded',
};

/** @param {string} trigger */
export function triggerWords(trigger) {
  return WHY_TRIGGERS[trigger] ?? trigger;
}

/**
 * `Compaction 2: the threshold was reached; 81,315 → ~15,940 tokens`; with `details`, where it is and
 * by which policy, too.
 * @param {Timeline} timeline
 * @param {number} index
 * @param {boolean} [details]
 */
export function compactionSummary(timeline, index, details = false) {
  const one = timeline.compactions[index];
  const asked = one.requested_by === null ? '' : `, asked for by ${one.requested_by}`;
  const policy = details && one.trigger !== IMPORTED ? `policy ${one.strategy}; ` : '';
  return `${compactionLabel(one)}${details ? ` at @${one.position}` : ''}: ${triggerWords(one.trigger)}${asked}; ${policy}${sizesText(one)}`;
}

/** `81,315 → ~15,940 tokens`. @param {Timeline['compactions'][number]} one */
export function sizesText({ before, before_estimated, after, after_estimated }) {
  return `${tokensText(before, before_estimated)} → ${tokensText(after, after_estimated)} tokens`;
}

/** @param {string} text @returns {string} */
export function capitalised(text) {
  return `${text[0]?.toUpperCase() ?? ''}${text.slice(1)}`;
}

/**
 * The last request up to `request` that held the message; null if none did.
 * @param {Timeline} timeline
 * @param {number} number
 * @param {number} request
 */
export function lastRequestBefore(timeline, number, request) {
  const { change } = standingAt(timeline, number, request);
  const from = change < 0 ? request : timeline.requestAt(timeline.changes.position[change]);
  // A message that a later plan took out again was out before: then this is not the last one.
  if (from < 0 || timeline.requests.last[from] < number) return null;
  const { what } = standingAt(timeline, number, from);
  return ['whole', 'shortened', 'stripped', 'partial'].includes(what) ? from : null;
}
