/**
 * Text of messages, as it may be shown: it hides nothing and turns nothing around.
 *
 * The characters are those that the command line escapes: controls without tab and line feed, line
 * separators, marks that reorder text, characters without a width, tags, and lone surrogates. A
 * terminal's colour codes so read `\x1b[31m`.
 */

import { h } from '../core/element.js';

const UNSAFE =
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff\u{e0000}-\u{e007f}]+/gu;

/** Longer texts are folded: so many characters stay in sight, or so many lines. */
export const FOLD_CHARACTERS = 6000;
const FOLD_LINES = 60;

/** The most that one step unfolds; a text of 50 MB must not stop the page. */
export const UNFOLD_CHARACTERS = 200_000;

/** The text with unsafe characters as escapes; line feeds and tabs stay. @param {unknown} text @returns {string} */
export function shownText(text) {
  return String(text).replace(UNSAFE, escapes);
}

/**
 * The beginning of the text on one line, with an ellipsis if it goes on.
 * @param {unknown} text
 * @param {number} [most] characters
 * @returns {string}
 */
export function firstLine(text, most = 200) {
  const whole = String(text);
  // Only the beginning is looked at; of 50 MB, too.
  const start = whole.slice(0, most * 4).replace(/\s+/g, ' ').trim();
  const cut = cutAt(start, most);
  const goesOn = cut.length < start.length || whole.length > most * 4;
  return shownText(cut) + (goesOn ? '…' : '');
}

/**
 * An element with the text, its breaks kept, escapes set apart, and a button that unfolds the rest.
 * `nodes` makes the nodes of a part of the text.
 * @param {unknown} text
 * @param {{characters?: number, lines?: number, class?: string, nodes?: (text: string) => Node[]}} [options]
 * @returns {HTMLElement}
 */
export function textView(text, { characters = FOLD_CHARACTERS, lines = FOLD_LINES, nodes = textNodes, ...rest } = {}) {
  const whole = String(text);
  const view = h('div', { class: `text ${rest.class ?? ''}`.trim(), dir: 'auto' });
  const showUpTo = (/** @type {number} */ end) => {
    view.replaceChildren(...nodes(whole.slice(0, end)));
    if (end >= whole.length) return;
    const next = cutAt(whole, end + UNFOLD_CHARACTERS).length;
    view.append(moreButton(whole.length - end, next < whole.length, () => showUpTo(next)));
  };
  showUpTo(foldAt(whole, characters, lines));
  return view;
}

/**
 * @param {number} left characters
 * @param {boolean} isMuch whether one step does not show them all
 * @param {() => void} show
 */
export function moreButton(left, isMuch, show) {
  return h('div', null, h('button', {
    class: 'more quiet',
    type: 'button',
    text: `Show ${isMuch ? 'more' : 'the rest'} (${left.toLocaleString('en-US')} characters)`,
    on: { click: show },
  }));
}

/**
 * Text nodes, with escapes in elements of their own, so that they cannot be taken for the text.
 * @param {string} text
 * @returns {Node[]}
 */
export function textNodes(text) {
  const made = [];
  let from = 0;
  for (const match of text.matchAll(UNSAFE)) {
    if (match.index > from) made.push(document.createTextNode(text.slice(from, match.index)));
    made.push(h('span', { class: 'escape', text: escapes(match[0]) }));
    from = match.index + match[0].length;
  }
  if (from < text.length || made.length === 0) {
    made.push(document.createTextNode(text.slice(from)));
  }
  return made;
}

/** @param {string} text @param {number} characters @param {number} lines */
function foldAt(text, characters, lines) {
  let at = -1;
  for (let seen = 0; seen < lines; seen++) {
    at = text.indexOf('\n', at + 1);
    if (at < 0 || at > characters) break;
  }
  const end = at < 0 ? characters : Math.min(at, characters);
  // A button that unfolds a few words more is no help.
  return text.length - end < 200 && at < 0 ? text.length : cutAt(text, end).length;
}

/** The first characters; a surrogate pair is never cut. @param {string} text @param {number} most */
function cutAt(text, most) {
  if (text.length <= most) return text;
  const unit = text.charCodeAt(most - 1);
  return text.slice(0, unit >= 0xd800 && unit <= 0xdbff ? most - 1 : most);
}

/** @param {string} run */
function escapes(run) {
  return Array.from(run, escapeOf).join('');
}

/** @param {string} character */
function escapeOf(character) {
  if (character === '\r') return '\\r';
  const code = character.codePointAt(0) ?? 0;
  const digits = code.toString(16);
  if (code < 0x100) return `\\x${digits.padStart(2, '0')}`;
  return code < 0x10000 ? `\\u${digits.padStart(4, '0')}` : `\\U${digits.padStart(8, '0')}`;
}
