/** Two policies played over the session with one budget: what each would have kept, and its cost. */

import { h } from '../core/element.js';
import { messageOf, source } from '../core/state.js';
import { jsonTwin } from '../parts/json-twin.js';
import { countText, percentText } from '../parts/numbers.js';
import { shownText } from '../parts/text.js';

/** A row of `eventctx compare --json`. @typedef {Record<string, any>} PolicyRow */

/** The columns of `eventctx compare`. @type {readonly (readonly [string, (row: PolicyRow) => string])[]} */
const POLICY_COLUMNS = [
  ['held', (row) => share(row.evidence.value)],
  ['starved', (row) => share(row.starved)],
  ['instructions', (row) => share(row.demands)],
  ['tokens', (row) => countText(row.tokens)],
  ['reuse', (row) => share(row.prefix_reuse)],
  ['cost of whole', (row) => share(row.cost_share)],
  ['compactions', (row) => countText(row.compactions)],
];

const NOTES = 'held: the share of what the model used again that its requests still held. starved: requests that held less than half. '
  + 'instructions: a person’s, word for word. reuse: tokens that a cache has from the request before. '
  + 'whole never compacts; hindsight knows what will be used.';

const USUAL_BUDGET = 50_000;

/**
 * @param {string} session
 * @param {number} budget of the request at the cursor; -1 if there is none. Only what came before a compaction is
 *   played, so half of it is proposed
 * @returns {HTMLElement}
 */
export function twoPolicies(session, budget) {
  const first = h('select', { 'aria-label': 'Policy A' });
  const second = h('select', { 'aria-label': 'Policy B' });
  const tokens = h('input', { type: 'number', min: 1, class: 'budget-field', value: String(budget > 0 ? Math.ceil(budget / 2) : USUAL_BUDGET) });
  const result = h('div', { role: 'status' });
  const play = h('button', { type: 'submit', text: 'Play' });
  const form = h('form', {
    class: 'compare-sides', on: { submit: (event) => { event.preventDefault(); void ask(); } },
  }, h('label', null, 'Policy A ', first), h('label', null, 'Policy B ', second), h('label', null, 'Budget ', tokens), play);
  void source.about().then(({ policies }) => {
    for (const [field, at] of /** @type {const} */ ([[first, 0], [second, 1]])) {
      field.replaceChildren(...policies.map((name) => h('option', { value: name, text: name })));
      field.value = policies[at] ?? '';
    }
  });
  const lead = h('p', { class: 'lead', text: 'What each policy would have kept of this session, and at what cost. It is played here; nothing is stored.' });
  return h('div', null, lead, form, result);

  async function ask() {
    result.replaceChildren(h('p', { text: 'Playing …' }));
    play.disabled = true;
    const asked = { policies: [...new Set([first.value, second.value])].join(','), budgets: tokens.value };
    try {
      const found = await source.answer(session, 'compare', asked);
      result.replaceChildren(policyTable(found), jsonTwin(session, 'compare', asked) ?? '');
    } catch (error) {
      result.replaceChildren(h('p', { class: 'bad', text: shownText(messageOf(error)) }));
    }
    play.disabled = false;
  }
}

/** @param {any} found */
function policyTable({ sessions, passed_over: passedOver, rows }) {
  const [played] = sessions;
  if (played === undefined) return h('p', { class: 'lead', text: shownText(passedOver[0]?.reason ?? 'This session holds nothing to play.') });
  return h('div', null,
    h('p', { class: 'lead', text: `Played up to its first compaction: ${countText(played.requests)} requests, of which ${countText(played.judged)} used something again.` }),
    h('div', { class: 'wide-table', tabindex: 0, role: 'region', 'aria-label': 'What each policy keeps' }, h('table', { class: 'token-table' },
      h('thead', null, h('tr', null, h('th', { scope: 'col', text: 'policy' }),
        POLICY_COLUMNS.map(([name]) => h('th', { scope: 'col', class: 'number', text: name })))),
      h('tbody', null, rows.map((/** @type {PolicyRow} */ row) => h('tr', null,
        h('th', { scope: 'row', text: row.policy }),
        POLICY_COLUMNS.map(([, text]) => h('td', { class: 'number', text: text(row) }))))))),
    h('p', { class: 'muted', text: NOTES }));
}

/** @param {number | null} part */
function share(part) {
  return part === null ? '' : percentText(part);
}
