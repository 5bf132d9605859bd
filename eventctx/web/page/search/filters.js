/** What a search asks of messages besides their words. */

import { h } from '../core/element.js';
import { source } from '../core/state.js';
import { filterBox, filterDays, filterField, wordAfter } from '../parts/filter-fields.js';

/** @typedef {import('../source/source.js').MessageFilter} MessageFilter */

/** As the command line names them, and as the page does. @type {readonly (readonly [string, string])[]} */
const SPEAKERS = [
  ['', 'anybody'], ['person', 'a person'], ['host', 'host'], ['model', 'model'], ['result', 'tool result'], ['system', 'system'],
];

/** @param {string} tab words of the address @returns {MessageFilter | null} null: it asks for nothing */
export function messageFilter(tab) {
  const word = (/** @type {string} */ start) => wordAfter(tab, start) || null;
  const errors = tab.split(' ').includes('errors') ? '1' : null;
  const asked = { role: word('role-'), tool: word('tool-'), errors, since: word('from-'), until: word('to-') };
  return Object.values(asked).some((one) => one !== null) ? asked : null;
}

/** @param {import('../core/element.js').Host} host */
export function filterFields(host) {
  const speakers = h('select', null, SPEAKERS.map(([value, text]) => h('option', { value, text })));
  const tool = h('input', { type: 'text', class: 'search-tool', placeholder: 'any', autocomplete: 'off', spellcheck: 'false' });
  return h('div', { class: 'search-filters', role: 'group', 'aria-label': 'Only messages' },
    filterField(host, 'role', 'Said by', speakers),
    // A file does not know which call a result answers.
    source.can.answers ? filterField(host, 'tool', 'Tool', tool) : null,
    filterBox(host, 'errors', 'Failed results'),
    filterDays(host));
}
