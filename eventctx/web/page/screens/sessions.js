/**
 * `<ctx-sessions>`: every session of the store, with what one looks for: what it was about, where,
 * with which model, how large it is, what it cost, and whether a person's words are out of view.
 */

import { define, h } from '../core/element.js';
import { filterBox, filterDays } from '../parts/filter-fields.js';
import { agoText, costText, counted, countText, shortTokens, tokensText, utcText } from '../parts/numbers.js';
import { csvButton } from '../parts/saving.js';
import { shownText } from '../parts/text.js';
import {} from '../parts/virtual-list.js';
import { go, linkTo, place } from '../core/place.js';
import { computed, signal } from '../core/signals.js';
import { listing, loadSessions, sessions, source } from '../core/state.js';
import {
  isReadable, knownAs, listedSessions, listOptions, originOf, tabOrderedBy, timeOf, titleOf,
} from './session-rows.js';

/** @typedef {import('../source/source.js').SessionRow} SessionRow */
/** @typedef {import('./session-rows.js').ListedSession} ListedSession */
/** @typedef {import('./session-rows.js').SessionColumn} SessionColumn */
/** @typedef {import('../core/element.js').Host} Host */

const ROW_HEIGHT = 56;
const REFRESH_MS = 5000;

/** @type {readonly (readonly [SessionColumn, string])[]} */
const COLUMNS = [
  ['title', 'Title'],
  ['project', 'Project'],
  ['model', 'Model'],
  ['tokens', 'Tokens'],
  ['cost', 'Cost'],
  ['last', 'Last used'],
];

/** A person's messages that are out of view, by session, as far as it is known. */
const lost = signal(/** @type {Record<string, number>} */ ({}));

const options = computed(() => listOptions(place.value));

const listed = computed(() => listedSessions(sessions.value ?? [], options.value, lost.value));

define('ctx-sessions', (host) => {
  const list = h('ctx-virtual-list', { class: 'sessions-list', role: 'rowgroup' });
  const table = h('div', { class: 'sessions-table', role: 'table', 'aria-label': 'Sessions' }, columnHeads(host), list);
  const body = h('div', { class: 'sessions-body' });
  host.replaceChildren(
    h('div', { class: 'sessions-top' }, h('h1', { text: 'Sessions' }), filterBar(host)),
    body,
  );
  host.effect(() => {
    if (sessions.value === null) {
      body.replaceChildren(h('p', { class: 'loading', role: 'status', text: progressText() }));
    } else if (sessions.value.length === 0) {
      body.replaceChildren(emptyStore());
    } else if (listed.value.length === 0) {
      body.replaceChildren(nothingFound());
    } else {
      if (!table.isConnected) body.replaceChildren(table);
      table.setAttribute('aria-rowcount', String(listed.value.length + 1));
      showRows(/** @type {import('../parts/virtual-list.js').VirtualList} */ (list));
    }
  });
  host.effect(() => {
    if (sessions.value !== null) void lookForLostWords(host);
  });
  return keepFresh();
});

function progressText() {
  const { read, sessions: all } = listing.value;
  return all === 0 ? 'Reading the sessions …' : `Reading ${countText(read)} of ${counted(all, 'session')} …`;
}

/** @param {import('../parts/virtual-list.js').VirtualList} list */
function showRows(list) {
  const rows = listed.value;
  const known = lost.value;
  const now = Date.now();
  list.rows = {
    count: rows.length,
    key: (at) => rows[at]?.row.session ?? '',
    look: (at) => {
      const { row, depth, matches } = /** @type {ListedSession} */ (rows[at]);
      return [row.records, depth, matches, row.live, agoText(timeOf(row.last), now), known[row.session]].join(' ');
    },
    height: () => ROW_HEIGHT,
    render: (at) => sessionRow(/** @type {ListedSession} */ (rows[at]), known, now),
  };
}

/** @param {ListedSession} listedRow @param {Record<string, number>} known @param {number} now */
function sessionRow({ row, depth, matches }, known, now) {
  const { project, model, tokens, tokens_estimated: estimated } = row;
  return h(
    'div',
    {
      class: `listed-row${matches ? '' : ' is-context'}`,
      role: 'presentation',
      vars: { '--depth': String(Math.min(depth, 6)) },
    },
    titleCell(row, known[row.session] ?? 0),
    cell('project', folderOf(project ?? ''), project),
    cell('model', (model ?? '').replace(/^.*\/|[-@](\d{8}|\d{4}-\d\d-\d\d)$/g, ''), model),
    cell('tokens', tokens === null ? '' : shortTokens(tokens, estimated), tokens === null ? null : `${tokensText(tokens, estimated)} tokens in the last request`),
    costCell(row),
    cell('last', row.last === null ? '' : agoText(timeOf(row.last), now), row.last === null ? null : utcText(timeOf(row.last))),
  );
}

/** @param {SessionColumn} column @param {string} text @param {string | null} title */
function cell(column, text, title) {
  return h('span', { class: `listed-${column}`, role: 'cell', title: title === null ? null : shownText(title), text: shownText(text) });
}

/** The last part of a path, of whichever system. @param {string} project */
function folderOf(project) {
  return project.split(/[\\/]/).findLast((part) => part !== '') ?? '';
}

/** @param {SessionRow} row */
function costCell({ cost, unpriced }) {
  const lacks = unpriced === 0 ? '' : `, without ${counted(unpriced, 'call')} of models that have no price`;
  return cell('cost', cost === null ? '' : `${unpriced === 0 ? '' : '≥ '}${costText(cost)}`, cost === null ? null : `At list prices${lacks}`);
}

/** @param {SessionRow} row @param {number} out messages of a person that are out of view */
function titleCell(row, out) {
  return h(
    'span',
    { class: 'listed-title', role: 'cell' },
    h(
      'a',
      { href: linkTo({ session: row.session, screen: 'session' }), title: shownText(row.session), 'data-row-focus': true },
      h('span', { class: 'listed-name', text: shownText(titleOf(row)) }),
      ' ',
      h('span', { class: 'listed-facts', text: shownText(factsOfSession(row)) }),
    ),
    row.live ? h('span', { class: 'badge good' }, h('span', { 'aria-hidden': 'true', text: '●' }), ' live') : null,
    out === 0 ? null : h(
      'span',
      { class: 'badge warn', title: `${counted(out, 'message')} of a person not in view at the end` },
      h('span', { 'aria-hidden': 'true', text: '⚠' }),
      ` ${countText(out)} lost`,
    ),
  );
}

/** What else is worth knowing of a session, in a line. @param {SessionRow} row */
function factsOfSession(row) {
  const part = row.link === 'branch' ? 'branch' : row.link === 'transcript' ? 'lines' : 'subagent';
  const whence = row.forked_at === null ? '' : ` at @${row.forked_at}`;
  const origin = originOf(row);
  const of = origin !== null && isReadable(origin) ? ` of ${origin}` : '';
  return [
    row.title !== null && isReadable(row.session) ? row.session : '',
    origin === null ? '' : row.parent !== null ? `fork${of}${whence}` : `${part}${of}`,
    row.format ?? 'eventctx',
    knownAs(row),
    row.compactions === 0 ? '' : counted(row.compactions, 'compaction'),
  ].filter((fact) => fact !== '').join(' · ');
}

/** @param {Host} host */
function columnHeads(host) {
  const heads = COLUMNS.map(([column, name]) => {
    const head = h(
      'span',
      { class: `listed-${column}`, role: 'columnheader' },
      h('button', { type: 'button', text: name, on: { click: () => go({ tab: tabOrderedBy(place.peek().tab, column) }, { replace: true }) } }),
    );
    host.effect(() => {
      const { column: by, down } = options.value;
      head.setAttribute('aria-sort', by !== column ? 'none' : down ? 'descending' : 'ascending');
    });
    return head;
  });
  return h('div', { role: 'rowgroup' }, h('div', { class: 'listed-row listed-columns', role: 'row', 'aria-rowindex': 1 }, heads));
}

/** @param {Host} host */
function filterBar(host) {
  const text = h('input', {
    type: 'search',
    placeholder: 'Title, project or model',
    'aria-label': 'Filter by title, project or model',
    on: { input: () => go({ query: text.value }, { replace: true }) },
  });
  const found = h('span', { class: 'muted', role: 'status' });
  const search = h('a', { title: 'Search all sessions (/)', 'aria-keyshortcuts': '/', text: 'Search messages' });
  host.effect(() => {
    if (text.value !== options.value.text) text.value = options.value.text;
    search.setAttribute('href', linkTo({ screen: 'search' }));
    found.textContent = sessions.value === null ? '' : foundText(sessions.value.length);
  });
  return h(
    'div',
    { class: 'sessions-filters', role: 'search', 'aria-label': 'Sessions' },
    text,
    filterDays(host),
    filterBox(host, 'compactions', 'Has compactions'),
    filterBox(host, 'lost', 'Has lost words'),
    search,
    csvButton('sessions', () => listed.peek().filter((one) => one.matches).map((one) => one.row)),
    found,
  );
}

/** @param {number} all */
function foundText(all) {
  const shown = listed.value.filter((one) => one.matches).length;
  const looked = Object.keys(lost.value).length;
  const { older } = listing.value;
  return [
    shown === all ? counted(all, 'session') : `${countText(shown)} of ${counted(all, 'session')}`,
    options.value.lost && looked < all ? `, ${countText(looked)} looked through for lost words` : '',
    older === 0 ? '' : `, and ${countText(older)} older that are not listed`,
  ].join('');
}

function nothingFound() {
  const { text } = options.peek();
  // An older session is opened by its name.
  const older = listing.peek().older === 0 || text === '' ? null : h('p', null, h('a', {
    href: linkTo({ session: text, screen: 'session' }),
    text: `Open the session named ${shownText(text)}`,
  }));
  return h(
    'section',
    { class: 'message-box' },
    h('h2', { text: 'No session like that' }),
    h('p', { text: 'Nothing in the list matches these filters.' }),
    older,
    h('p', null, h('button', { type: 'button', text: 'Show all sessions', on: { click: () => go({ query: '', tab: '' }) } })),
  );
}

function emptyStore() {
  return h(
    'section',
    { class: 'message-box' },
    h('h2', { text: 'No sessions yet' }),
    h('p', { text: 'Sessions appear here as soon as they are in the store. To bring one in:' }),
    h('pre', { text: 'eventctx import FILE    # a recorded session of your agent\neventctx demo           # a sample, to look around' }),
  );
}

let isLooking = false;

/** Asks until every session was looked through: each answer takes a while. @param {Host} host */
async function lookForLostWords(host) {
  if (isLooking) return;
  isLooking = true;
  try {
    for (let before = -1, looked = 0; host.isConnected && looked > before; ) {
      before = looked;
      lost.value = await source.lost();
      looked = Object.keys(lost.peek()).length;
    }
  } catch {
    // Without them the list says all the rest; the next reading may bring them.
  } finally {
    isLooking = false;
  }
}

/** Reads the list again while it is looked at. */
function keepFresh() {
  if (!source.can.live) return undefined;
  const timer = setInterval(() => {
    if (document.visibilityState === 'visible') void loadSessions();
  }, REFRESH_MS);
  return () => clearInterval(timer);
}
