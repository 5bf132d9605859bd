/**
 * What became of a message at a request, as a word and a pattern: never by colour alone.
 *
 * The patterns are in parts.css and, for the canvas, in charts/patterns.js.
 */

import { h } from '../core/element.js';

/** @typedef {'whole' | 'shortened' | 'stripped' | 'partial' | 'summarised' | 'dropped' | 'merged' | 'replaced' | 'set' | 'cleared' | 'omitted' | 'not_added'} Standing */

/** @type {Readonly<Record<Standing, readonly [word: string, meaning: string]>>} */
const MEANINGS = {
  whole: ['sent', 'sent as it was added'],
  shortened: ['shortened', 'sent, its text cut down'],
  stripped: ['stripped', 'sent without its thinking'],
  partial: ['partly sent', 'sent without some of its results'],
  summarised: ['summarised', 'a summary was sent instead'],
  dropped: ['dropped', 'left out by a compaction'],
  merged: ['merged', 'sent as part of another message'],
  replaced: ['replaced', 'another text was sent instead'],
  set: ['taken away', 'taken out when the messages were set anew'],
  cleared: ['cleared', 'taken out when the session was cleared'],
  omitted: ['left out', 'left out: its call is not in this request'],
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
