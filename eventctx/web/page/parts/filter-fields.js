/** Fields of a filter, which are words in the address: `lost from-2026-11-01`. A change replaces its own word. */

import { h } from '../core/element.js';
import { go, place } from '../core/place.js';

/** @typedef {import('../core/element.js').Host} Host */

/**
 * The word in the address that begins so, without its beginning; '' if there is none.
 * @param {string} tab
 * @param {string} start
 */
export function wordAfter(tab, start) {
  return tab.split(' ').find((word) => word.startsWith(start))?.slice(start.length) ?? '';
}

/**
 * The words of the address with `word` in the place of those that `instead` finds; '' adds none.
 * @param {string} tab
 * @param {RegExp} instead
 * @param {string} word
 */
export function tabWith(tab, instead, word) {
  return [...tab.split(' ').filter((one) => !instead.test(one)), word].filter(Boolean).join(' ');
}

/** @param {Host} host @param {string} name a word of its own @param {string} label */
export function filterBox(host, name, label) {
  const box = h('input', { type: 'checkbox', on: { change: () => setWord(new RegExp(`^${name}$`), box.checked ? name : '') } });
  host.effect(() => {
    box.checked = place.value.tab.split(' ').includes(name);
  });
  return h('label', null, box, label);
}

/**
 * @param {Host} host
 * @param {string} name the word is this, a hyphen, and the field's value
 * @param {string} label
 * @param {HTMLInputElement | HTMLSelectElement} field
 */
export function filterField(host, name, label, field) {
  const word = () => field.value.trim().replace(/\s+/g, '');
  field.addEventListener('change', () => setWord(new RegExp(`^${name}-`), word() && `${name}-${word()}`));
  host.effect(() => {
    const value = wordAfter(place.value.tab, `${name}-`);
    if (value !== word()) field.value = value;
  });
  return h('label', null, label, field);
}

/** The first and the last day. @param {Host} host */
export function filterDays(host) {
  return [
    filterField(host, 'from', 'From', h('input', { type: 'date' })),
    filterField(host, 'to', 'to', h('input', { type: 'date' })),
  ];
}

/** @param {RegExp} instead @param {string} word */
function setWord(instead, word) {
  go({ tab: tabWith(place.peek().tab, instead, word) }, { replace: true });
}
