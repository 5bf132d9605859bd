/** A difference of two texts, as lines with a sign in front: never told by colour alone. */

import { h } from '../core/element.js';
import { appendRows } from '../parts/more-rows.js';
import { counted } from '../parts/numbers.js';
import { shownText } from '../parts/text.js';
import { textDiff, withoutTheSame } from './text-diff.js';
import { argumentsOf, hostedArguments } from '../panes/message-line.js';
import { partsOf } from '../source/message-parts.js';

/** @typedef {import('./text-diff.js').DiffLine} DiffLine */
/** @typedef {import('../source/message-parts.js').MessagePart} MessagePart */

const DIFFED_CHARACTERS = 200_000;
const LINES_AT_ONCE = 400;
const DIFF_SIGNS = { same: ' ', gone: '−', new: '+' };
const DIFF_WORDS = { same: '', gone: 'removed: ', new: 'added: ' };

/** @param {string} before @param {string} after @returns {HTMLElement} */
export function diffView(before, after) {
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
export function textsOfMessage(message) {
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
