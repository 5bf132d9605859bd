/**
 * The entries of two views as a list: only A, both, only B, in order. What is the same in both is
 * folded; texts are read when a row is opened.
 */

import { h } from '../core/element.js';
import { messageLine } from '../panes/message-line.js';
import { messageView } from '../panes/message.js';
import { counted, countText, tokensText } from '../parts/numbers.js';
import { firstLine } from '../parts/text.js';
import { linkTo } from '../core/place.js';
import { textsOfMessage } from '../search/message-texts.js';
import { groupOf, SCREEN_GROUPS } from '../timeline/groups.js';
import { diffView } from './diff-view.js';
import { segmentsOfPairs } from './view-pairs.js';

/** @typedef {import('./view-pairs.js').ViewPair} ViewPair */
/** @typedef {import('./view-pairs.js').Entry} Entry */
/** @typedef {ReturnType<typeof segmentsOfPairs>[number]} Segment */
/** Reads the bodies at these places. @typedef {(places: {position: number, index: number}[]) => Promise<any[]>} Bodies */

const ROWS_AT_FIRST = 30;
const MORE_ROWS = 200;
/** So few changed rows are opened at once, with their differences. */
const DIFFS_AT_ONCE = 3;

const SEGMENT_TITLES = {
  a: 'Only in A',
  same: 'In both, the same',
  changed: 'In both, changed',
  b: 'Only in B',
};

const PAIR_KIND_WORDS = /** @type {Readonly<Record<string, string>>} */ ({
  system: 'system',
  person: 'you',
  model: 'model',
  result: 'result',
  summary: 'inserted',
});

/**
 * @param {ViewPair[]} pairs
 * @param {Bodies} bodies
 * @param {{a: number | null, b: number | null}} positions of the two requests, for links
 * @returns {HTMLElement}
 */
export function pairList(pairs, bodies, positions) {
  const segments = segmentsOfPairs(pairs);
  const changed = pairs.filter((pair) => pair.changed).length;
  const context = { bodies, positions, openDiffs: changed <= DIFFS_AT_ONCE };
  return h('div', { class: 'pair-list' }, segments.map((segment) => segmentView(segment, context)));
}

/** @typedef {{bodies: Bodies, positions: {a: number | null, b: number | null}, openDiffs: boolean}} PairContext */

/** @param {Segment} segment @param {PairContext} context */
function segmentView(segment, context) {
  const rows = h('ul', { class: 'pair-rows' });
  const title = h('span', { text: SEGMENT_TITLES[segment.kind] });
  const size = h('span', { class: 'muted', text: ` ${counted(segment.pairs.length, 'entry', 'entries')} · ${tokensText(segment.tokens, true)} tokens` });
  const fold = h('details', { class: `segment segment-${segment.kind}`, open: segment.kind !== 'same' },
    h('summary', null, h('span', { class: 'segment-sign', 'aria-hidden': 'true' }), title, size), rows);
  // The rows of a folded segment are made when somebody opens it.
  const fill = () => {
    if (fold.open && rows.childElementCount === 0) showPairs(rows, segment.pairs, 0, ROWS_AT_FIRST, context);
  };
  fold.addEventListener('toggle', fill);
  fill();
  return fold;
}

/**
 * @param {HTMLElement} list
 * @param {ViewPair[]} pairs
 * @param {number} from
 * @param {number} count
 * @param {PairContext} context
 */
function showPairs(list, pairs, from, count, context) {
  const to = Math.min(pairs.length, from + count);
  list.append(...pairs.slice(from, to).map((pair) => pairRow(pair, context)));
  if (to === pairs.length) return;
  const left = pairs.length - to;
  const text = left > MORE_ROWS ? `Show ${MORE_ROWS} of ${countText(left)} more` : `Show ${countText(left)} more`;
  const more = h('button', { type: 'button', class: 'quiet', text });
  const row = h('li', { class: 'pair-more' }, more);
  more.addEventListener('click', () => {
    row.remove();
    showPairs(list, pairs, to, MORE_ROWS, context);
  });
  list.append(row);
}

/** @param {ViewPair} pair @param {PairContext} context */
function pairRow(pair, context) {
  const entry = /** @type {Entry} */ (pair.b ?? pair.a);
  const line = h('span', { class: 'pair-line muted', text: '…' });
  const inside = h('div', { class: 'pair-inside' });
  const row = h('details', { class: 'pair' },
    h('summary', null,
      h('span', { class: 'pair-name', text: entryName(entry) }),
      h('span', { class: `kind-word g-${SCREEN_GROUPS[groupOf(entry.group)]}`, text: entryKind(entry) }),
      line,
      h('span', { class: 'number', text: pairSizes(pair) })),
    inside);
  void showLine(entry, line, context.bodies);
  row.addEventListener('toggle', () => {
    if (row.open && inside.childElementCount === 0) void showInside(pair, inside, context);
  });
  if (pair.changed && context.openDiffs) row.open = true;
  return h('li', null, row);
}

/** @param {Entry} entry @returns {string} */
function entryName(entry) {
  if (entry.number !== null && entry.kind !== 'synthetic') return `#${entry.number}`;
  return entry.position === null ? '' : `@${entry.position}`;
}

/** @param {Entry} entry @returns {string} */
function entryKind(entry) {
  if (entry.kind === 'insertion') return (entry.extra?.name ?? 'inserted').replaceAll('_', ' ');
  if (entry.kind === 'synthetic') return 'made up';
  return PAIR_KIND_WORDS[SCREEN_GROUPS[groupOf(entry.group)]] ?? '';
}

/** @param {ViewPair} pair */
function pairSizes({ a, b }) {
  const [before, after] = [a?.tokens ?? 0, b?.tokens ?? 0];
  if (a !== null && b !== null && before !== after) return `${tokensText(before, true)} → ${tokensText(after, true)}`;
  return tokensText(b === null ? before : after, true);
}

/** @param {Entry} entry @param {HTMLElement} line @param {Bodies} bodies */
async function showLine(entry, line, bodies) {
  const place = placeOfEntry(entry);
  try {
    const [message] = place === null ? [undefined] : await bodies([place]);
    line.textContent = message === undefined ? 'made for this request' : firstLine(messageLine(message));
    line.classList.remove('muted');
  } catch {
    line.textContent = 'its text could not be read';
  }
}

/** @param {ViewPair} pair @param {HTMLElement} inside @param {PairContext} context */
async function showInside(pair, inside, { bodies, positions }) {
  const wanted = [pair.a, pair.b].map((entry) => (entry === null ? null : placeOfEntry(entry)));
  const places = /** @type {{position: number, index: number}[]} */ (wanted.filter((place) => place !== null));
  inside.replaceChildren(h('p', { class: 'muted', text: '…' }));
  try {
    const found = await bodies(places);
    const both = wanted[0] !== null && wanted[1] !== null;
    const view = both && pair.changed
      ? diffView(textsOfMessage(found[0]).join('\n'), textsOfMessage(found[1]).join('\n'))
      : messageView(found.at(-1) ?? null, { detail: 2 });
    inside.replaceChildren(whyLink(pair, positions), view);
  } catch (error) {
    inside.replaceChildren(h('p', { class: 'bad', text: `This could not be read: ${error}` }));
  }
}

/** @param {ViewPair} pair @param {{a: number | null, b: number | null}} positions */
function whyLink(pair, positions) {
  const number = (pair.b ?? pair.a)?.number ?? null;
  if (number === null) return '';
  const text = pair.side === 'a' ? 'Why it is not in B' : pair.side === 'b' ? 'Why it is in B' : 'Why it is so in B';
  return h('p', null, h('a', {
    href: linkTo({ screen: 'session', at: positions.b, message: number, tab: 'why' }), text,
  }));
}

/** @param {Entry} entry */
function placeOfEntry({ position, index }) {
  return position === null || index === null ? null : { position, index };
}
