/** The tokens of two requests by kind, side by side, with bars of one scale. */

import { h } from '../core/element.js';
import { signed, tokensText } from '../parts/numbers.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/** In the order of `SCREEN_GROUPS`, with the classes that colour them. */
const TOKEN_ROWS = /** @type {const} */ ([
  ['system', 'System and host, in messages'],
  ['person', 'You'],
  ['model', 'Model'],
  ['result', 'Tool results'],
  ['summary', 'Summaries and inserted texts'],
]);

/**
 * Tokens of a request by what a person tells apart; what is with the messages is -1 if not known.
 *
 * @param {Timeline} timeline
 * @param {number} request
 */
function tokensByKind(timeline, request) {
  const { beside, total, estimated } = timeline.requests;
  return {
    groups: Array.from(timeline.sums(request)),
    beside: beside[request],
    total: total[request],
    estimated: estimated[request] === 1,
  };
}

/** @param {Timeline} timeline @param {number} a @param {number} b @param {string[]} [names] @returns {HTMLElement} */
export function tokenTable(timeline, a, b, names = ['A', 'B']) {
  return tokensOfTwo(tokensByKind(timeline, a), tokensByKind(timeline, b), names);
}

/**
 * @param {ReturnType<typeof tokensByKind>} one
 * @param {ReturnType<typeof tokensByKind>} other
 * @param {string[]} names
 * @returns {HTMLElement}
 */
export function tokensOfTwo(one, other, names) {
  const scale = Math.max(1, one.beside, other.beside, ...one.groups, ...other.groups);
  const rows = [
    tokenRow('beside', 'System prompt and tools, beside the messages', one.beside, other.beside, scale, true),
    ...TOKEN_ROWS.map(([kind, title], at) =>
      tokenRow(kind, title, one.groups[at], other.groups[at], scale, true)),
  ];
  return h('table', { class: 'token-table' },
    h('caption', { class: 'only-heard', text: `Tokens by kind, in ${names.join(' and in ')}` }),
    h('thead', null, h('tr', null,
      h('th', { scope: 'col', text: 'Tokens' }),
      h('th', { scope: 'col', class: 'number', text: names[0] }),
      h('th', { scope: 'col', class: 'number', text: names[1] }),
      h('th', { scope: 'col', class: 'number', text: 'Change' }),
      h('td', { class: 'bars wide-only' }))),
    h('tbody', null, rows),
    h('tfoot', null, h('tr', null,
      h('th', { scope: 'row', text: 'All' }),
      numberCell(tokensText(one.total, one.estimated)),
      numberCell(tokensText(other.total, other.estimated)),
      numberCell(signed(other.total - one.total)),
      h('td', { class: 'bars wide-only' }))),
  );
}

/**
 * @param {string} kind
 * @param {string} title
 * @param {number} before
 * @param {number} after
 * @param {number} scale
 * @param {boolean} estimated
 */
function tokenRow(kind, title, before, after, scale, estimated) {
  if (before <= 0 && after <= 0) return null;
  const known = before >= 0 && after >= 0;
  return h('tr', null,
    h('th', { scope: 'row' }, h('span', { class: `group-dot g-${kind}`, 'aria-hidden': 'true' }), title),
    numberCell(before < 0 ? 'not known' : tokensText(before, estimated)),
    numberCell(after < 0 ? 'not known' : tokensText(after, estimated)),
    numberCell(known ? signed(after - before) : ''),
    h('td', { class: 'bars wide-only', 'aria-hidden': 'true' },
      bar(kind, 'a', before, scale), bar(kind, 'b', after, scale)));
}

/** @param {string} text */
function numberCell(text) {
  return h('td', { class: 'number', text });
}

/** @param {string} kind @param {string} side @param {number} tokens @param {number} scale */
function bar(kind, side, tokens, scale) {
  if (tokens <= 0) return h('span', { class: 'bar bar-none' });
  const width = `${(tokens / scale) * 100}%`;
  return h('span', { class: `bar bar-${side} g-${kind}`, vars: { '--width': width } });
}
