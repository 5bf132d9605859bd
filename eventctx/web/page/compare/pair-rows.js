/**
 * Entries of two views as rows that unfold: what changed in one that both have, else its text. Texts
 * are read when a row is made, and shown when it is opened.
 */

import { h } from '../core/element.js';
import { linkTo } from '../core/place.js';
import { source } from '../core/state.js';
import { messageLink, screenGroup } from '../panes/message-head.js';
import { messageLine, argumentsOf, hostedArguments } from '../panes/message-line.js';
import { messageView } from '../panes/message.js';
import { appendRows } from '../parts/more-rows.js';
import { counted, tokensText } from '../parts/numbers.js';
import { kindWord } from '../parts/standing.js';
import { firstLine, shownText } from '../parts/text.js';
import { placeOfText } from '../timeline/entries.js';
import { segmentsOfPairs } from './view-pairs.js';
import { textDiff, withoutTheSame } from './text-diff.js';
import { partsOf } from '../source/message-parts.js';

/** @typedef {import('./view-pairs.js').ViewPair} ViewPair */
/** @typedef {import('./view-pairs.js').Entry} Entry */
/** @typedef {import('./text-diff.js').DiffLine} DiffLine */
/** @typedef {import('../source/message-parts.js').MessagePart} MessagePart */

/** @typedef {ReturnType<typeof segmentsOfPairs>[number]} Segment */

/** The session, the position of the later request, and its name. @typedef {{session: string, at: number, later: string}} PairContext */

const ROWS_AT_FIRST = { first: 30, step: 200 };
/** So few changed rows are opened at once, with their differences. */
const DIFFS_AT_ONCE = 3;

const SEGMENT_TITLES = {
  a: 'Only in A',
  same: 'In both, the same',
  changed: 'In both, changed',
  b: 'Only in B',
};

/**
 * All entries in order: only A, both, only B. What is the same in both is folded.
 * @param {ViewPair[]} pairs
 * @param {PairContext} context
 * @returns {HTMLElement}
 */
export function pairList(pairs, context) {
  const opens = pairs.filter((pair) => pair.changed).length <= DIFFS_AT_ONCE;
  return h('div', { class: 'pair-list' }, segmentsOfPairs(pairs).map((segment) => segmentView(segment, context, opens)));
}

/** @param {Segment} segment @param {PairContext} context @param {boolean} opens */
function segmentView(segment, context, opens) {
  const rows = h('ul', { class: 'pair-rows' });
  const title = h('span', { text: SEGMENT_TITLES[segment.kind] });
  const size = h('span', { class: 'muted', text: ` ${counted(segment.pairs.length, 'entry', 'entries')} · ${tokensText(segment.tokens, true)} tokens` });
  const fold = h('details', { class: `segment segment-${segment.kind}`, open: segment.kind !== 'same' },
    h('summary', null, h('span', { class: 'segment-sign', 'aria-hidden': 'true' }), title, size), rows);
  // The rows of a folded segment are made when somebody opens it.
  const fill = () => {
    if (!fold.open || rows.childElementCount > 0) return;
    appendRows(rows, segment.pairs, (pair) => pairRow(pair, context, opens), ROWS_AT_FIRST);
  };
  fold.addEventListener('toggle', fill);
  fill();
  return fold;
}

/**
 * One entry of two views. `opens`: what changed in it is shown at once.
 * @param {ViewPair} pair
 * @param {PairContext} context
 * @param {boolean} [opens]
 */
export function pairRow(pair, context, opens = false) {
  const entry = /** @type {Entry} */ (pair.b ?? pair.a);
  const line = h('span', { class: 'pair-line muted', text: '…' });
  void showLine(entry, line, context);
  return foldingRow(
    nameOf(entry), [kindMark(entry), line, h('span', { class: 'number', text: pairSizes(pair) })],
    (inside) => void showInside(pair, inside, context), pair.changed && opens);
}

/**
 * A row that unfolds. Its name may be a link, which must not be in what is pressed to unfold it.
 * @param {Node} name
 * @param {Node[]} head
 * @param {(inside: HTMLElement) => void} show fills what is in it when it is first opened
 * @param {boolean} [open]
 */
export function foldingRow(name, head, show, open = false) {
  const inside = h('div', { class: 'pair-inside' });
  const row = h('details', { class: 'pair' }, h('summary', null, head), inside);
  row.addEventListener('toggle', () => {
    if (row.open && inside.childElementCount === 0) show(inside);
  });
  row.open = open;
  return h('li', null, name, row);
}

/** @param {Entry} entry */
function nameOf({ kind, number, position }) {
  if (number !== null && kind !== 'synthetic') return h('span', { class: 'pair-name' }, messageLink(number));
  return h('span', { class: 'pair-name', text: position === null ? '' : `@${position}` });
}

/** @param {Entry} entry */
function kindMark({ kind, group, extra }) {
  const word = kind === 'insertion' ? (extra?.name ?? 'inserted').replaceAll('_', ' ')
    : kind === 'synthetic' ? 'made up' : kindWord(group);
  return h('span', { class: `kind-word g-${screenGroup(group)}`, text: word });
}

/** @param {ViewPair} pair */
function pairSizes({ a, b }) {
  const [before, after] = [a?.tokens ?? 0, b?.tokens ?? 0];
  if (a !== null && b !== null && before !== after) return `${tokensText(before, true)} → ${tokensText(after, true)}`;
  return tokensText(b === null ? before : after, true);
}

/** @param {Entry} entry @param {HTMLElement} line @param {PairContext} context */
async function showLine(entry, line, { session }) {
  const place = placeOfText(entry);
  try {
    const [message] = place === null ? [undefined] : await source.bodies(session, [place]);
    line.textContent = message === undefined ? 'made for this request' : firstLine(messageLine(message));
    line.classList.remove('muted');
  } catch {
    line.textContent = 'its text could not be read';
  }
}

/** @param {ViewPair} pair @param {HTMLElement} inside @param {PairContext} context */
async function showInside(pair, inside, context) {
  const places = [pair.a, pair.b].flatMap((entry) => (entry && placeOfText(entry)) ?? []);
  inside.replaceChildren(h('p', { class: 'muted', text: '…' }));
  try {
    const found = await source.bodies(context.session, places);
    const view = found.length === 2 && pair.changed
      ? diffView(textsOfMessage(found[0]).join('\n'), textsOfMessage(found[1]).join('\n'))
      : found.length === 0 ? h('p', { class: 'muted', text: 'It is made for each request, and not kept.' })
        : messageView(found.at(-1) ?? null, { detail: 2 });
    inside.replaceChildren(whyLink(pair, context), view);
  } catch (error) {
    inside.replaceChildren(h('p', { class: 'bad', text: `This could not be read: ${error}` }));
  }
}

/** @param {ViewPair} pair @param {PairContext} context */
function whyLink({ side, a, b }, { at, later }) {
  const number = (b ?? a)?.number ?? null;
  if (number === null) return '';
  const text = `Why it is ${{ a: 'not', b: '', both: 'so' }[side]} in ${later}`.replace('  ', ' ');
  return h('p', null, h('a', { href: linkTo({ screen: 'session', at, message: number, tab: 'why' }), text }));
}

const DIFFED_CHARACTERS = 200_000;
const LINES_AT_ONCE = 400;
const DIFF_SIGNS = { same: ' ', gone: '−', new: '+' };
const DIFF_WORDS = { same: '', gone: 'removed: ', new: 'added: ' };

/** A difference of two texts, as lines with a sign in front: never told by colour alone. @param {string} before @param {string} after */
function diffView(before, after) {
  const lines = withoutTheSame(textDiff(before.slice(0, DIFFED_CHARACTERS), after.slice(0, DIFFED_CHARACTERS)));
  const view = h('div', { class: 'diff', role: 'group', 'aria-label': 'What changed in the text', tabindex: '0' });
  appendRows(view, lines, lineView, { first: LINES_AT_ONCE, step: LINES_AT_ONCE });
  if (Math.max(before.length, after.length) > DIFFED_CHARACTERS) {
    view.append(h('p', { class: 'muted', text: 'The texts go on; only their beginnings are compared.' }));
  }
  return view;
}

/** @param {DiffLine | {skipped: number}} line */
function lineView(line) {
  if ('skipped' in line) {
    return h('p', { class: 'diff-skipped', text: `… ${counted(line.skipped, 'line')} the same` });
  }
  return h('p', { class: `diff-line diff-${line.fate}` },
    h('span', { class: 'diff-sign', 'aria-hidden': 'true', text: DIFF_SIGNS[line.fate] }),
    h('span', { class: 'only-heard', text: DIFF_WORDS[line.fate] }),
    h('span', { class: 'diff-text' }, line.pieces.map(({ fate, text }) =>
      fate === 'same' || line.pieces.length === 1
        ? shownText(text)
        : h(fate === 'gone' ? 'del' : 'ins', { text: shownText(text) }))),
  );
}

/** All that can be read in a message, as plain texts in order. @param {any} message null where it was erased @returns {string[]} */
function textsOfMessage(message) {
  if (message === null || message === undefined) return [];
  return partsOf(message).flatMap(textsOfPart).filter((text) => text !== '');
}

/** @param {MessagePart} part @returns {string[]} */
function textsOfPart(part) {
  switch (part.kind) {
    case 'text':
    case 'refusal':
      return [String(part.value)];
    case 'thinking':
      return [String(part.value ?? '')];
    case 'call':
      return [`${part.name ?? ''} ${readableValue(argumentsOf(part.value))}`];
    case 'hosted':
      return [`${part.name ?? ''} ${readableValue(hostedArguments(part))}`];
    case 'result':
      return part.inner.flatMap(textsOfPart);
    case 'image':
    case 'document':
      return [`[${part.kind}]`];
    default:
      return [readableValue(part.value)];
  }
}

/**
 * A value with its line breaks as they are, one name a line, so that a diff finds the lines.
 *
 * @param {any} value
 * @returns {string}
 */
function readableValue(value) {
  if (typeof value === 'string') return value;
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    return JSON.stringify(value, null, 1) ?? '';
  }
  return Object.entries(value)
    .map(([name, item]) => `${name}: ${typeof item === 'string' ? item : JSON.stringify(item)}`)
    .join('\n');
}
