/** JSON as a tree that folds: what is deep or long is made when it is opened. */

import { h } from '../core/element.js';
import { dataText } from './data-text.js';
import { appendRows } from './more-rows.js';
import { countText } from './numbers.js';
import { firstLine, shownText } from './text.js';

const OPEN_DEPTH = 2;
/** More entries than this are folded from the start. */
const OPEN_ENTRIES = 12;
const ENTRIES_AT_ONCE = 200;
const STRING_FOLD = { characters: 1500, lines: 16 };

/** @param {any} value @returns {HTMLElement} */
export function jsonTree(value) {
  if (!isBranch(value)) return leafView(value);
  const list = h('ul', { class: 'json data', dir: 'ltr' });
  addEntries(list, Object.entries(value), Array.isArray(value), 1);
  return list;
}

/** The JSON that a text holds; undefined if it holds no object and no list. @param {string} text @returns {any} */
export function jsonInText(text) {
  const ends = text.length > 1_000_000 ? '' : text.trim().replace(/^(.)[^]*(.)$/, '$1$2');
  if (ends !== '{}' && ends !== '[]') return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // something like it
  }
}

/** @param {HTMLElement} list @param {[string, any][]} entries @param {boolean} isArray @param {number} depth */
function addEntries(list, entries, isArray, depth) {
  appendRows(list, entries, ([key, value]) => {
    const name = h('span', { class: isArray ? 'json-index' : 'json-key', text: shownText(key) });
    return h('li', null, isBranch(value) ? branchView(name, value, depth) : [name, ' ', leafView(value)]);
  }, { first: ENTRIES_AT_ONCE, step: ENTRIES_AT_ONCE });
}

/** @param {HTMLElement} name @param {any} value @param {number} depth */
function branchView(name, value, depth) {
  const entries = Object.entries(value);
  const isArray = Array.isArray(value);
  const [opens, closes] = isArray ? '[]' : '{}';
  const view = h('details', null, h('summary', null, name, ' ',
    h('span', { class: 'json-size', text: `${opens}${entries.length === 0 ? '' : countText(entries.length)}${closes}` }), ' ',
    h('span', { class: 'begins', text: isArray ? '' : firstLine(Object.keys(value).slice(0, 6).join(', '), 60) })));
  const fill = () => {
    if (!view.open || view.childElementCount > 1) return;
    const list = h('ul', { class: 'json' });
    addEntries(list, entries, isArray, depth + 1);
    view.append(list);
  };
  view.addEventListener('toggle', fill);
  view.open = depth < OPEN_DEPTH && entries.length > 0 && entries.length <= OPEN_ENTRIES;
  fill(); // at once: the event comes after the row was measured
  return view;
}

/** @param {any} value @returns {HTMLElement} */
function leafView(value) {
  if (typeof value === 'string') return dataText(value, STRING_FOLD);
  return h('span', { class: 'json-scalar', text: String(value) });
}

/** @param {any} value */
function isBranch(value) {
  return value !== null && typeof value === 'object';
}
