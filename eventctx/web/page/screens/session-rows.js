/**
 * The rows of the list of sessions: which ones, in which order, and how a session is called.
 *
 * The order and the filters are words in the address, such as `lost from-2026-11-01 cost-down`.
 */

import { grouped } from '../core/keyed.js';
import { tabWith, wordAfter } from '../parts/filter-fields.js';

/** @typedef {import('../source/source.js').SessionRow} SessionRow */
/** @typedef {{row: SessionRow, depth: number, matches: boolean}} ListedSession */
/** @typedef {'title' | 'project' | 'model' | 'tokens' | 'cost' | 'last'} SessionColumn */

/** `from` and `to` are days (UTC) of the last use, '' where there is no limit.
 * @typedef {{text: string, compactions: boolean, lost: boolean, from: string, to: string,
 *   column: SessionColumn, down: boolean}} ListOptions
 */

/** @type {Readonly<Record<SessionColumn, (row: SessionRow) => string | number | null>>} */
const SORT_VALUES = {
  title: (row) => titleOf(row).toLowerCase(),
  project: (row) => row.project,
  model: (row) => row.model,
  tokens: (row) => row.tokens,
  cost: (row) => row.cost,
  last: (row) => row.last,
};

const ORDER_WORD = /^(title|project|model|tokens|cost|last)-(up|down)$/;

/** @param {{query: string, tab: string}} address @returns {ListOptions} */
export function listOptions({ query, tab }) {
  const words = tab.split(' ');
  const order = words.map((word) => ORDER_WORD.exec(word)).find((found) => found !== null);
  return {
    text: query,
    compactions: words.includes('compactions'),
    lost: words.includes('lost'),
    from: wordAfter(tab, 'from-'),
    to: wordAfter(tab, 'to-'),
    column: /** @type {SessionColumn} */ (order?.[1] ?? 'last'),
    down: order?.[2] !== 'up',
  };
}

/**
 * The words of the address with another order: a second click on a column turns it around, the first
 * shows the largest figures, the latest use and the first letters.
 * @param {string} tab
 * @param {SessionColumn} column
 */
export function tabOrderedBy(tab, column) {
  const now = listOptions({ query: '', tab });
  const isText = column === 'title' || column === 'project' || column === 'model';
  const down = now.column === column ? !now.down : !isText;
  return tabWith(tab, ORDER_WORD, `${column}-${down ? 'down' : 'up'}`);
}

/**
 * The sessions that the options let through. In the order of use forks and subagents are under where
 * they began, and an origin is there for what it leads to; any other order is flat.
 * @param {readonly SessionRow[]} rows
 * @param {ListOptions} options
 * @param {Readonly<Record<string, number>>} lost words out of view, by session
 * @returns {ListedSession[]}
 */
export function listedSessions(rows, options, lost) {
  const matches = matcher(options, lost);
  const compare = comparison(options);
  if (options.column === 'last') return listedAsTree([...rows].sort(compare), matches);
  return rows.filter(matches).sort(compare).map((row) => ({ row, depth: 0, matches: true }));
}

/**
 * @param {readonly SessionRow[]} rows in the order of those that began nowhere else
 * @param {(row: SessionRow) => boolean} matches
 */
function listedAsTree(rows, matches) {
  const known = new Set(rows.map((row) => row.session));
  const under = grouped(rows, (row) => {
    const origin = originOf(row);
    return origin !== null && known.has(origin) ? origin : '';
  });
  const placed = new Set();
  /** @param {SessionRow} row @param {number} depth @returns {ListedSession[]} */
  function branch(row, depth) {
    if (placed.has(row.session)) return []; // two that name each other as origin
    placed.add(row.session);
    const below = (under.get(row.session) ?? [])
      .sort((a, b) => timeOf(a.started) - timeOf(b.started))
      .flatMap((child) => branch(child, depth + 1));
    const self = { row, depth, matches: matches(row) };
    return self.matches || below.length > 0 ? [self, ...below] : [];
  }
  // Sessions that are one another's origin hang on no root, and must not be missing.
  return [...(under.get('') ?? []), ...rows].flatMap((row) => branch(row, 0));
}

/**
 * What is not known comes last in either direction.
 * @param {ListOptions} options
 * @returns {(a: SessionRow, b: SessionRow) => number}
 */
function comparison({ column, down }) {
  const value = SORT_VALUES[column];
  return (one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === b) return 0;
    if (a === null || b === null) return a === null ? 1 : -1;
    return a < b === down ? 1 : -1;
  };
}

/**
 * @param {ListOptions} options
 * @param {Readonly<Record<string, number>>} lost
 * @returns {(row: SessionRow) => boolean}
 */
function matcher({ text, compactions, lost: onlyLost, from, to }, lost) {
  const words = text.toLowerCase().split(/\s+/).filter((word) => word !== '');
  return (row) => {
    if (compactions && row.compactions === 0) return false;
    if (onlyLost && !lost[row.session]) return false;
    const day = (row.last ?? '').slice(0, 10);
    if (from !== '' && day < from) return false;
    if (to !== '' && (day === '' || day > to)) return false;
    const texts = [row.title, row.project, row.model, row.session, row.format, knownAs(row)];
    const searched = texts.join(' ').toLowerCase();
    return words.every((word) => searched.includes(word));
  };
}

/** The session that this one began in, as a fork or as a subagent. @param {SessionRow} row */
export function originOf(row) {
  return row.parent ?? row.belongs_to;
}

/** @param {SessionRow} row @returns {string} */
export function titleOf(row) {
  return row.title ?? row.session;
}

/** Whether a name was made by a program: a person does not look for it, nor read it. */
const MADE_NAME = /[0-9a-f]{8}-[0-9a-f]{4}-|[0-9a-f]{16}/i;

/** Whether a person may know the session by its name. @param {string} session */
export function isReadable(session) {
  return !MADE_NAME.test(session);
}

/**
 * A session in a few words: by its title where its name says nothing.
 * @param {string} session
 * @param {readonly SessionRow[] | null} rows
 * @returns {string}
 */
export function labelOf(session, rows) {
  if (isReadable(session)) return session;
  return rows?.find((row) => row.session === session)?.title ?? session;
}

/** @param {string | null} iso @returns {number} ms since 1970, 0 without a time */
export function timeOf(iso) {
  return iso === null ? 0 : Date.parse(iso);
}

/** How a session's requests are known, in a word. @param {SessionRow} row */
export function knownAs({ requests, observed, reconstructed }) {
  if (requests === 0) return '';
  if (reconstructed === requests) return 'reconstructed';
  if (observed === requests) return 'observed';
  return reconstructed + observed === 0 ? 'prepared' : 'mixed';
}
