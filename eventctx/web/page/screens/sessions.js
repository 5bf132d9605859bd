/**
 * `<ctx-sessions>`: every session of the store, with what one looks for: how long it is, how often
 * it was compacted, and whether a person's words are out of view.
 */

import { define, h } from '../core/element.js';
import { icon } from '../parts/icons.js';
import { agoText, counted, countText, utcText } from '../parts/numbers.js';
import { sparkline } from '../parts/sparkline.js';
import { shownText } from '../parts/text.js';
import {} from '../parts/virtual-list.js';
import { go, linkTo, place } from '../core/place.js';
import { computed, signal } from '../core/signals.js';
import { loadSessions, older, sessions, source } from '../core/state.js';
import { knownAs, listedSessions, originOf, timeOf } from './session-rows.js';

/** @typedef {import('../source/source.js').SessionRow} SessionRow */
/** @typedef {import('../source/source.js').Sparkline} Sparkline */
/** @typedef {import('./session-rows.js').ListedSession} ListedSession */
/** @typedef {import('../core/element.js').Host} Host */

const ROW_HEIGHT = 52;
const REFRESH_MS = 5000;
/** A session whose last record is younger is taken for one that runs. */
const RUNNING_MS = 90_000;

/** Sizes and lost words by session, as far as they are known. @type {import('../core/signals.js').Signal<Record<string, Sparkline>>} */
const sparklines = signal(/** @type {Record<string, Sparkline>} */ ({}));

/** Which filters are on is in the address, as all of the place. */
const filters = computed(() => {
  const on = place.value.tab.split(',');
  return {
    text: place.value.query,
    compactions: on.includes('compactions'),
    lost: on.includes('lost'),
  };
});

const listed = computed(() =>
  listedSessions(sessions.value ?? [], filters.value, (name) => sparklines.value[name]?.lost ?? null),
);

define('ctx-sessions', (host) => {
  const list = h('ctx-virtual-list', { class: 'sessions-list', 'aria-label': 'Sessions' });
  const body = h('div', { class: 'sessions-body' });
  host.replaceChildren(
    h('div', { class: 'sessions-top' }, h('h1', { text: 'Sessions' }), filterBar(host)),
    body,
  );
  host.effect(() => {
    if (sessions.value === null) {
      body.replaceChildren(h('p', { class: 'loading', text: 'Reading the sessions …' }));
    } else if (sessions.value.length === 0) {
      body.replaceChildren(emptyStore());
    } else if (listed.value.length === 0) {
      body.replaceChildren(nothingFound());
    } else {
      if (!list.isConnected) body.replaceChildren(columnNames(), list);
      showRows(/** @type {import('../parts/virtual-list.js').VirtualList} */ (list));
    }
  });
  host.effect(() => {
    if (sessions.value !== null) void loadSparklines();
  });
  return keepFresh();
});

/** @param {import('../parts/virtual-list.js').VirtualList} list */
function showRows(list) {
  const rows = listed.value;
  const known = sparklines.value;
  const now = Date.now();
  list.rows = {
    count: rows.length,
    key: (at) => rows[at]?.row.session ?? '',
    look: (at) => lookOf(rows[at], known, now),
    height: () => ROW_HEIGHT,
    render: (at) => sessionRow(/** @type {ListedSession} */ (rows[at]), known, now),
  };
}

/**
 * @param {ListedSession | undefined} listedRow
 * @param {Record<string, Sparkline>} known
 * @param {number} now
 */
function lookOf(listedRow, known, now) {
  if (listedRow === undefined) return '';
  const { row, depth, matches } = listedRow;
  const spark = known[row.session];
  const ago = row.last === null ? '' : agoText(timeOf(row.last), now);
  return [row.records, depth, matches, ago, spark?.lost, spark?.totals.length].join(' ');
}

/**
 * @param {ListedSession} listedRow
 * @param {Record<string, Sparkline>} known
 * @param {number} now
 */
function sessionRow({ row, depth, matches }, known, now) {
  const spark = known[row.session];
  return h(
    'a',
    {
      class: `listed-row${matches ? '' : ' is-context'}`,
      href: linkTo({ session: row.session, screen: 'session' }),
      'data-row-focus': true,
      vars: { '--depth': String(Math.min(depth, 6)) },
    },
    nameCell(row, depth, spark?.lost ?? 0),
    h('span', { class: 'listed-source' }, sourceName(row), knownNote(row)),
    countCell('turns', row.turns, 'turn'),
    countCell('requests', row.requests, 'request'),
    countCell('compactions', row.compactions, 'compaction'),
    h('span', { class: 'listed-spark' }, spark ? sparkline(spark.totals) : null),
    lastCell(row, now),
  );
}

/**
 * @param {SessionRow} row
 * @param {number} depth
 * @param {number} lost
 */
function nameCell(row, depth, lost) {
  const origin = originOf(row);
  const part = row.link === 'branch' ? 'branch' : row.link === 'transcript' ? 'lines' : 'subagent';
  const relation = row.parent !== null ? 'fork' : part;
  const whence = row.parent !== null && row.forked_at !== null ? ` at @${row.forked_at}` : '';
  return h(
    'span',
    { class: 'listed-name' },
    origin === null ? null : icon('origin'),
    h('span', { class: 'listed-title', text: shownText(shortName(row, depth)), title: shownText(row.session) }),
    origin === null
      ? null
      : h('span', { class: 'badge', text: `${relation}${depth > 0 ? '' : ` of ${shownText(origin)}`}${whence}` }),
    lost === 0 ? null : lostBadge(lost),
  );
}

/** @param {number} lost */
function lostBadge(lost) {
  const title = `${counted(lost, 'message')} of a person not in view at the end`;
  return h('span', { class: 'badge warn', title }, icon('warning'), ` ${countText(lost)} lost`);
}

/**
 * A subagent's name begins with its origin's, which is above it.
 * @param {SessionRow} row
 * @param {number} depth
 */
function shortName(row, depth) {
  const origin = row.belongs_to;
  if (depth === 0 || origin === null || !row.session.startsWith(`${origin}.`)) return row.session;
  return row.session.slice(origin.length + 1);
}

/** @param {SessionRow} row */
function sourceName(row) {
  return h('span', { text: row.format ?? 'eventctx' });
}

/** @param {SessionRow} row */
function knownNote(row) {
  const known = knownAs(row);
  return known === '' ? null : h('span', { class: 'muted', text: known });
}

/**
 * @param {string} name
 * @param {number} count
 * @param {string} noun
 */
function countCell(name, count, noun) {
  const unit = count === 1 ? noun : `${noun}s`;
  return h(
    'span',
    { class: `number listed-${name}${count === 0 ? ' is-none' : ''}` },
    countText(count),
    h('span', { class: 'listed-unit', text: ` ${unit}` }),
  );
}

/**
 * @param {SessionRow} row
 * @param {number} now
 */
function lastCell(row, now) {
  if (row.last === null) return h('span', { class: 'listed-last muted', text: 'no time' });
  const ms = timeOf(row.last);
  const runs = source.can.live && Math.abs(now - ms) < RUNNING_MS;
  return h(
    'span',
    { class: 'listed-last', title: utcText(ms) },
    h('span', { text: agoText(ms, now) }),
    runs ? h('span', { class: 'badge good' }, icon('live'), ' live') : null,
  );
}

function columnNames() {
  const names = ['Name', 'Source', 'Turns', 'Requests', 'Compactions', 'Tokens', 'Last record'];
  const classes = ['name', 'source', 'turns', 'requests', 'compactions', 'spark', 'last'];
  return h(
    'div',
    { class: 'listed-row listed-columns', 'aria-hidden': 'true' },
    names.map((name, at) => h('span', { class: `listed-${classes[at]}`, text: name })),
  );
}

/** @param {Host} host */
function filterBar(host) {
  const text = h('input', {
    type: 'search',
    placeholder: 'Filter by name or source',
    'aria-label': 'Filter by name or source',
    on: { input: () => go({ query: text.value }, { replace: true }) },
  });
  host.effect(() => {
    if (text.value !== place.value.query) text.value = place.value.query;
  });
  const found = h('span', { class: 'muted', role: 'status' });
  host.effect(() => {
    const all = sessions.value?.length ?? 0;
    const shown = listed.value.filter((one) => one.matches).length;
    const before = older.value === 0 ? '' : `, and ${countText(older.value)} older that are not listed`;
    found.textContent =
      (shown === all ? counted(all, 'session') : `${countText(shown)} of ${counted(all, 'session')}`) +
      before;
  });
  return h(
    'div',
    { class: 'sessions-filters', role: 'search', 'aria-label': 'Sessions' },
    text,
    filterBox(host, 'compactions', 'Has compactions'),
    filterBox(host, 'lost', 'Has lost words'),
    found,
  );
}

/**
 * @param {Host} host
 * @param {'compactions' | 'lost'} name
 * @param {string} label
 */
function filterBox(host, name, label) {
  const box = h('input', { type: 'checkbox', on: { change: toggle } });
  host.effect(() => {
    box.checked = filters.value[name];
  });
  function toggle() {
    const on = place.peek().tab.split(',').filter((one) => one !== '' && one !== name);
    go({ tab: (box.checked ? [...on, name] : on).join(',') }, { replace: true });
  }
  return h('label', null, box, label);
}

function nothingFound() {
  return h(
    'section',
    { class: 'message-box' },
    h('h2', { text: 'No session like that' }),
    h('p', { text: 'Nothing in the list matches these filters.' }),
    older.peek() === 0 ? null : namedSession(filters.peek().text),
    h(
      'p',
      null,
      h('button', {
        type: 'button',
        text: 'Show all sessions',
        on: { click: () => go({ query: '', tab: '' }) },
      }),
    ),
  );
}

/**
 * An older session is opened by its name.
 * @param {string} name
 */
function namedSession(name) {
  return h('p', null, h('a', { href: linkTo({ session: name, screen: 'session' }), text: `Open the session named ${shownText(name)}` }));
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

async function loadSparklines() {
  // Without them the list says all the rest; the next reading may bring them.
  const loaded = await source.sparklines().catch(() => undefined);
  if (loaded !== undefined) sparklines.value = loaded;
}

/** Reads the list again while it is looked at. */
function keepFresh() {
  if (!source.can.live) return undefined;
  const timer = setInterval(() => {
    if (document.visibilityState === 'visible') void loadSessions();
  }, REFRESH_MS);
  return () => clearInterval(timer);
}
