/** What a program wrote: JSON as a tree that folds, of which what is deep or long is made when it is opened, and texts. */

import { h } from '../core/element.js';
import { appendRows } from './more-rows.js';
import { countText } from './numbers.js';
import { firstLine, shownText, textNodes, textView } from './text.js';

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

/** A hunk's head, or that of a patch as models write it; only the beginning is looked at. */
const DIFF_HEAD = /^(?:@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|\*\*\* (?:Begin Patch|Update File: ))/m;
const LOOKED_AT = 20_000;

/** A unified diff with its lines coloured, or the text as it is. @param {string} text @param {{characters?: number, lines?: number}} [fold] @returns {HTMLElement} */
export function dataText(text, fold = {}) {
  const isDiff = DIFF_HEAD.test(text.slice(0, LOOKED_AT));
  return textView(text, { ...fold, class: 'data', ...(isDiff ? { nodes: diffNodes } : {}) });
}

/** @param {string} text @returns {Node[]} */
function diffNodes(text) {
  return diffRuns(text).map(([kind, run]) => h('span', { class: kind === '' ? null : kind }, textNodes(run)));
}

/**
 * The lines of a diff in runs of one kind: `ins`, `del`, `hunk` for heads, '' for all else.
 * @param {string} text
 * @returns {[kind: string, run: string][]}
 */
export function diffRuns(text) {
  /** @type {[string, string][]} */
  const runs = [];
  let isInHunk = false;
  for (const line of text.match(/[^\n]*\n|[^\n]+$/g) ?? []) {
    const isHead = /^(?:@@|\*\*\* |diff --git |index [0-9a-f]+\.\.|--- |\+\+\+ )/.test(line);
    // A line of a list begins with a dash as well: only within a hunk it was taken out.
    isInHunk = isHead ? /^(?:@@|\*\*\* )/.test(line) : isInHunk && /^[-+ \\\n]/.test(line);
    const kind = isHead ? 'hunk' : !isInHunk ? '' : line[0] === '+' ? 'ins' : line[0] === '-' ? 'del' : '';
    const last = runs.at(-1);
    if (last !== undefined && last[0] === kind) last[1] += line;
    else runs.push([kind, line]);
  }
  return runs;
}
