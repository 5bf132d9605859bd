/**
 * `<ctx-search>`: what was said, in view or not. Hits of the open session are ticks on its charts,
 * too, and stay there until another search.
 */

import { hits } from '../charts/hits.js';
import {} from '../charts/overview.js';
import { define, h } from '../core/element.js';
import { counted, percentText } from '../parts/numbers.js';
import { go, place } from '../core/place.js';
import { hitRow } from '../search/hit-row.js';
import { requestsOfHits } from '../search/hits-in-requests.js';
import { searchTexts } from '../search/text-search.js';
import { signal } from '../core/signals.js';
import { cursor, messageOf, source, timeline } from '../core/state.js';
import { cursorLine } from '../parts/cursor-line.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('../search/text-search.js').SearchHit} SearchHit */
/** @typedef {{query: string, everywhere: boolean, found: SearchHit[]}} Answer */

const TYPED_AFTER_MS = 250;
const HITS_AT_ONCE = 50;

define('ctx-search', (host) => {
  host.classList.add('screen');
  const everywhere = signal(false);
  const answer = signal(/** @type {Answer | null} */ (null));
  const says = h('p', { class: 'lead', role: 'status' });
  const list = h('ol', { class: 'hit-list' });
  host.replaceChildren(
    h('h1', { tabindex: '-1', text: 'Search' }),
    searchForm(host, everywhere), says,
    h('div', { class: 'search-charts' }, h('ctx-overview'), cursorLine(host, 'search')), list);

  host.effect(() => {
    const { query, session } = place.value;
    const now = timeline.value;
    if (query.trim() === '') {
      says.textContent = 'Words, "quoted phrases" and prefix* are understood.';
      list.replaceChildren();
      hits.value = [];
      answer.value = null;
      return undefined;
    }
    if (session !== null && now === null) return undefined;
    const all = everywhere.value;
    let wanted = true;
    void answered(now, query, all, (text) => {
      if (wanted) says.textContent = text;
      return wanted;
    }).then((found) => {
      if (wanted && found !== null) answer.value = { query, everywhere: all, found };
    });
    return () => {
      wanted = false;
    };
  });
  host.effect(() => showHits(answer.value, says, list));
});

/**
 * @param {import('../core/element.js').Host} host
 * @param {import('../core/signals.js').Signal<boolean>} everywhere
 */
function searchForm(host, everywhere) {
  const field = h('input', {
    type: 'search', class: 'search-field', 'aria-label': 'Search for', value: place.peek().query,
    autocomplete: 'off', spellcheck: 'false',
    on: { input: () => later() },
  });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const search = () => {
    clearTimeout(timer);
    go({ query: field.value }, { replace: true });
  };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(search, TYPED_AFTER_MS);
  };
  // An address that was changed elsewhere; what is being typed is newer than that.
  host.effect(() => {
    const { query } = place.value;
    if (document.activeElement !== field) field.value = query;
  });
  queueMicrotask(() => field.focus());
  const scope = h('label', { hidden: true },
    h('input', { type: 'checkbox', on: { change: (event) => { everywhere.value = event.target.checked; } } }),
    ' in all sessions');
  // An exported file holds one session; what there is to read from is known with the first of it.
  host.effect(() => {
    scope.hidden = timeline.value === null || !source.can.search || !source.can.answers;
  });
  return h('form', { role: 'search', class: 'search-form', on: { submit: (event) => { event.preventDefault(); search(); } } },
    field, h('button', { type: 'submit', text: 'Search' }), scope);
}

/**
 * The hits, or null where the search failed or was given up.
 *
 * @param {Timeline | null} now
 * @param {string} query
 * @param {boolean} all
 * @param {(text: string) => boolean} tell what goes on; false when nobody wants to know
 * @returns {Promise<SearchHit[] | null>}
 */
async function answered(now, query, all, tell) {
  if (!source.can.search && !source.can.live) {
    tell('This file was written without texts, so there is nothing to search.');
    return null;
  }
  tell('Searching …');
  try {
    if (source.can.search) return await source.search(query, all || now === null ? null : now.session);
  } catch (error) {
    if (all || now === null) {
      tell(`The search failed: ${messageOf(error)}`);
      return null;
    }
  }
  const bodies = (/** @type {{position: number, index: number}[]} */ places) =>
    source.bodies(/** @type {Timeline} */ (now).session, places);
  try {
    return now === null ? [] : await searchTexts(now, query, bodies, (done, of) => tell(`Searching … ${percentText(done / of)}`));
  } catch (error) {
    tell(`The search failed: ${messageOf(error)}`);
    return null;
  }
}

/**
 * @param {Answer | null} answer
 * @param {HTMLElement} says
 * @param {HTMLElement} list
 */
function showHits(answer, says, list) {
  if (answer === null) return;
  const now = timeline.value;
  const request = cursor.value;
  const { found, query } = answer;
  const own = now === null ? [] : found.filter(({ session }) => session === now.session);
  const ticks = now === null ? [] : requestsOfHits(now, own.map(({ number }) => number));
  hits.value = ticks;
  says.textContent = foundText(answer, own.length, ticks.length);
  const rowOf = (/** @type {SearchHit} */ hit) =>
    hitRow(hit, query, now !== null && hit.session === now.session ? now : null, request);
  list.replaceChildren(...found.slice(0, HITS_AT_ONCE).map(rowOf));
  showMoreHits(list, found.slice(HITS_AT_ONCE), rowOf);
}

/**
 * @param {HTMLElement} list
 * @param {SearchHit[]} rest
 * @param {(hit: SearchHit) => HTMLElement} rowOf
 */
function showMoreHits(list, rest, rowOf) {
  if (rest.length === 0) return;
  const row = h('li', null, h('button', {
    type: 'button',
    text: `Show ${counted(rest.length, 'more hit')}`,
    on: { click: () => row.replaceWith(...rest.map(rowOf)) },
  }));
  list.append(row);
}

/** @param {Answer} answer @param {number} own @param {number} ticks */
function foundText({ found, everywhere, query }, own, ticks) {
  if (found.length === 0) return `Nothing holds “${query}”${everywhere ? ' in any session' : ' in this session'}.`;
  const where = everywhere ? ` in ${counted(new Set(found.map(({ session }) => session)).size, 'session')}` : '';
  const marked = own === 0 || ticks === 0 ? '' : `; marked on the river at ${counted(ticks, 'request')}`;
  return `${counted(found.length, 'message')}${where}${marked}.`;
}
