/**
 * What became of a message at a request, as a word and a pattern: never by colour alone.
 *
 * The patterns are in parts.css and, for the canvas, in charts/patterns.js.
 */

import { h } from '../core/element.js';

/** @typedef {'whole' | 'shortened' | 'stripped' | 'partial' | 'summarised' | 'dropped' | 'merged' | 'replaced' | 'set' | 'cleared' | 'omitted' | 'not_added'} Standing */

/** @type {Readonly<Record<Standing, readonly [word: string, meaning: string, sentence?: string]>>} */
const MEANINGS = {
  whole: ['sent', 'sent as it was added'],
  shortened: ['shortened', 'sent, its text cut down'],
  stripped: ['stripped', 'sent without its thinking'],
  partial: ['partly sent', 'sent without some of its results'],
  summarised: ['summarised', 'a summary was sent instead', 'Summarised'],
  dropped: ['dropped', 'left out by a compaction', 'Dropped'],
  merged: ['merged', 'sent as part of another message', 'Merged with another message'],
  replaced: ['replaced', 'another text was sent instead', 'Replaced by the host’s own system prompt'],
  set: ['taken away', 'taken out when the messages were set anew', 'Taken out by a set of the transcript'],
  cleared: ['cleared', 'taken out when the session was cleared', 'Taken out by a clear of the transcript'],
  omitted: ['left out', 'left out: its call is not in this request', 'Left out: a result whose call is not in this request'],
  not_added: ['not there yet', 'added after this request'],
};

/** @param {string} what */
export function standingWord(what) {
  return MEANINGS[/** @type {Standing} */ (what)]?.[0] ?? what;
}

/** @param {string} what */
export function standingMeaning(what) {
  return MEANINGS[/** @type {Standing} */ (what)]?.[1] ?? what;
}

/** As the beginning of a sentence. @param {string} what */
export function standingSentence(what) {
  return MEANINGS[/** @type {Standing} */ (what)]?.[2] ?? what;
}

/** Whether a message of this standing is sent, at least in part. @param {string} what */
export function isInView(what) {
  return what === 'whole' || what === 'shortened' || what === 'stripped' || what === 'partial';
}

/** A swatch with the pattern, and the word. @param {string} what @returns {HTMLElement} */
export function standingMark(what) {
  const swatch = h('span', { class: `swatch st-${what}`, 'aria-hidden': 'true' });
  return h(
    'span',
    { class: 'standing', title: standingMeaning(what) },
    swatch,
    h('span', { text: standingWord(what) }),
  );
}

/**
 * What became of a message at a request. The timeline calls an entry that lacks its thinking or some of
 * its results whole; a person is told what is missing.
 * @param {import('../timeline/timeline.js').Timeline} timeline
 * @param {number} number
 * @param {number} request
 * @returns {{what: string, change: number, extra: number|null}}
 */
export function standingAt(timeline, number, request) {
  if (request < 0) return { what: 'not_added', change: -1, extra: null };
  const { what, change, extra } = timeline.standing(number, request);
  const kind = extra === null ? null : timeline.entry(extra).kind;
  if (kind === 'stripped' || kind === 'partial') return { what: kind, change, extra };
  return { what, change, extra };
}

/** How a request is known, by its code. */
export const KNOWN_WORDS = Object.freeze(['observed', 'prepared', 'reconstructed']);

/** @type {readonly string[]} by kind of message */
const KIND_WORDS = ['system', 'person', 'host', 'model', 'result', 'other'];

/** @param {number} code */
export function kindWord(code) {
  return KIND_WORDS[code] ?? 'other';
}
