/**
 * `<ctx-search>`: what was said, in view or not, in a session or in all. Hits of the open session are
 * ticks on its charts, too, and stay there until another search.
 */

import { hits, cursor, messageOf, sessions, source, timeline } from '../core/state.js';
import {} from '../charts/overview.js';
import { define, h } from '../core/element.js';
import { counted, countText } from '../parts/numbers.js';
import { shownText } from '../parts/text.js';
import { grouped } from '../core/keyed.js';
import { go, linkTo, place } from '../core/place.js';
import { hitRow, requestsOfHits } from '../search/hit-row.js';
import { signal } from '../core/signals.js';
import { cursorLine } from '../parts/cursor-line.js';
import { labelOf } from './session-rows.js';
import { filterBox, filterDays, filterField, wordAfter } from '../parts/filter-fields.js';

/** @typedef {import('../source/source.js').MessageFilter} MessageFilter */

/** @typedef {import('../source/source.js').Found & {query: string}} Answer */

const TYPED_AFTER_MS = 250;

define('ctx-search', (host) => {
  const { session } = place.peek();
  host.classList.add('screen');
  const answer = signal(/** @type {Answer | null} */ (null));
  const says = h('p', { class: 'lead', role: 'status' });
  const list = h('div');
  host.replaceChildren(
    h('h1', { tabindex: '-1', text: session === null ? 'Search all sessions' : 'Search' }),
    searchForm(host, session), filterFields(host), says,
    ...(session === null ? [] : [h('div', { class: 'search-charts' }, h('ctx-overview'), cursorLine(host, 'search'))]), list);

  host.effect(() => {
    const { query, screen, tab } = place.value;
    if (screen !== 'search') return undefined;
    let wanted = true;
    const tell = (/** @type {string} */ text) => {
      if (wanted) says.textContent = text;
    };
    void answered(query, session, messageFilter(tab), tell).then((found) => {
      if (wanted) answer.value = found;
    });
    return () => {
      wanted = false;
    };
  });
  host.effect(() => showHits(answer.value, says, list));
});

/** @param {import('../core/element.js').Host} host @param {string | null} session */
function searchForm(host, session) {
  const field = h('input', {
    type: 'search', class: 'search-field', 'aria-label': 'Search for', value: place.peek().query,
    autocomplete: 'off', spellcheck: 'false',
    on: { input: () => later() },
  });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const search = () => {
    clearTimeout(timer);
    if (host.isConnected) go({ query: field.value }, { replace: true });
  };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(search, TYPED_AFTER_MS);
  };
  const everywhere = h('a', { text: 'Search all sessions' });
  host.effect(() => {
    const { query, tab } = place.value;
    // An address that was changed elsewhere; what is being typed is newer than that.
    if (document.activeElement !== field) field.value = query;
    everywhere.setAttribute('href', linkTo({ session: null, screen: 'search', query, tab }));
  });
  queueMicrotask(() => field.focus());
  return h('form', { role: 'search', class: 'search-form', on: { submit: (event) => { event.preventDefault(); search(); } } },
    field, h('button', { type: 'submit', text: 'Search' }),
    // A file holds one session.
    session === null || !source.can.live ? null : everywhere);
}

/**
 * The hits, or null where there are none to be had.
 *
 * @param {string} query
 * @param {string | null} session
 * @param {MessageFilter | null} only
 * @param {(text: string) => void} tell what goes on
 * @returns {Promise<Answer | null>}
 */
async function answered(query, session, only, tell) {
  tell('Words, "quoted phrases" and prefix* are understood.');
  if (query.trim() === '' && only === null) return null;
  tell(source.can.search ? 'Searching …' : 'This file was written without texts, so there is nothing to search.');
  if (!source.can.search) return null;
  try {
    return { query, ...(await source.search(query, session, only)) };
  } catch (error) {
    tell(`The search failed: ${messageOf(error)}`);
    return null;
  }
}

/** @param {Answer | null} answer @param {HTMLElement} says @param {HTMLElement} list */
function showHits(answer, says, list) {
  const now = timeline.value;
  const found = answer?.found ?? [];
  const ticks = now === null ? [] : requestsOfHits(now, found.map(({ number }) => number));
  hits.value = ticks;
  list.replaceChildren();
  if (answer === null) return;
  says.textContent = matchesText(answer, now === null, ticks.length);
  for (const [session, group] of grouped(found, (hit) => hit.session)) {
    const rows = group.map((hit) => hitRow(hit, answer.query, now, cursor.value));
    if (now === null) list.append(groupHead(session, rows.length));
    list.append(h('ol', { class: 'hit-list' }, rows));
  }
}

/** @param {string} session @param {number} count */
function groupHead(session, count) {
  const label = shownText(labelOf(session, sessions.value));
  return h('h2', { class: 'hit-session' },
    h('a', { href: linkTo({ session, screen: 'session' }), title: shownText(session), text: label }),
    h('span', { class: 'muted', text: counted(count, 'message') }));
}

/** @param {Answer} answer @param {boolean} everywhere @param {number} ticks */
function matchesText({ found, total, query }, everywhere, ticks) {
  if (total === 0) return `${query === '' ? 'No message is like that' : `Nothing like that holds “${query}”`}${everywhere ? ' in any session' : ' in this session'}.`;
  const where = everywhere ? `, in ${counted(new Set(found.map(({ session }) => session)).size, 'session')}` : '';
  const marked = ticks === 0 ? '' : `; marked on the river at ${counted(ticks, 'request')}`;
  const shown = found.length < total ? `The ${query === '' ? 'last' : 'best'} ${countText(found.length)} of ` : '';
  return `${shown}${counted(total, 'message')}${where}${marked}.`;
}

/** As the command line names them, and as the page does. @type {readonly (readonly [string, string])[]} */
const SPEAKERS = [
  ['', 'anybody'], ['person', 'a person'], ['host', 'host'], ['model', 'model'], ['result', 'tool result'], ['system', 'system'],
];

/** @param {string} tab words of the address @returns {MessageFilter | null} null: it asks for nothing */
function messageFilter(tab) {
  const word = (/** @type {string} */ start) => wordAfter(tab, start) || null;
  const errors = tab.split(' ').includes('errors') ? '1' : null;
  const asked = { role: word('role-'), tool: word('tool-'), errors, since: word('from-'), until: word('to-') };
  return Object.values(asked).some((one) => one !== null) ? asked : null;
}

/** @param {import('../core/element.js').Host} host */
function filterFields(host) {
  const speakers = h('select', null, SPEAKERS.map(([value, text]) => h('option', { value, text })));
  const tool = h('input', { type: 'text', class: 'search-tool', placeholder: 'any', autocomplete: 'off', spellcheck: 'false' });
  return h('div', { class: 'search-filters', role: 'group', 'aria-label': 'Only messages' },
    filterField(host, 'role', 'Said by', speakers),
    // A file does not know which call a result answers.
    source.can.answers ? filterField(host, 'tool', 'Tool', tool) : null,
    filterBox(host, 'errors', 'Failed results'),
    filterDays(host));
}
