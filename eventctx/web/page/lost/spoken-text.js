/** What a person wrote, with the sentences marked that demand something. */

import { h } from '../core/element.js';
import { readMessageParts } from '../panes/message-parts.js';
import { countText } from '../parts/numbers.js';
import { firstLine, shownText } from '../parts/text.js';

/** Longer texts begin folded; a text of megabytes is cut, its whole is in the session. */
const UNFOLDED_CHARACTERS = 400;
const MOST_SPOKEN_CHARACTERS = 20_000;

/** The plain texts of a message. @param {any} message @returns {string[]} */
export function spokenTexts(message) {
  return readMessageParts(message)
    .filter(({ kind }) => kind === 'text')
    .map(({ value }) => String(value));
}

/**
 * The text, with its demands marked; of a long one the demands stand first, one a line.
 *
 * @param {any} message null where it was erased, or where there are no texts
 * @param {string[]} demands the sentences in it that demand something
 * @returns {HTMLElement}
 */
export function spokenView(message, demands) {
  if (message === null || message === undefined) {
    return h('p', { class: 'spoken muted', text: 'Its text is not here: it was erased, or left out.' });
  }
  const whole = spokenTexts(message).join('\n');
  const isLong = whole.length > UNFOLDED_CHARACTERS;
  return h('div', { class: 'spoken' },
    isLong && demands.length > 0
      ? h('ul', { class: 'demands' },
        demands.map((demand) => h('li', null, h('mark', { text: shownText(demand) }))))
      : null,
    !isLong
      ? markedText(whole, demands)
      : h('details', null,
        h('summary', null,
          h('span', { class: 'beginning', text: firstLine(whole, 160) }),
          h('span', { class: 'muted', text: ` (${countText(whole.length)} characters)` })),
        markedText(whole, demands)),
  );
}

/** @param {string} text @param {string[]} demands */
function markedText(text, demands) {
  const cut = text.slice(0, MOST_SPOKEN_CHARACTERS);
  return h('p', { class: 'spoken-text' },
    markedPieces(cut, demands).map((piece) =>
      h(piece.demand ? 'mark' : 'span', { text: shownText(piece.text) })),
    cut.length < text.length ? h('span', { class: 'muted', text: ' … the rest is in the session' }) : null,
  );
}

/**
 * A text in pieces, of which those that are demands are marked: joined, they are the text.
 *
 * @param {string} text
 * @param {string[]} demands
 * @returns {{text: string, demand: boolean}[]}
 */
export function markedPieces(text, demands) {
  const places = demands
    .map((demand) => ({ from: text.indexOf(demand), to: text.indexOf(demand) + demand.length }))
    .filter(({ from }) => from >= 0)
    .sort((a, b) => a.from - b.from);
  /** @type {{text: string, demand: boolean}[]} */
  const pieces = [];
  let at = 0;
  for (const { from, to } of places) {
    if (from < at) continue;
    if (from > at) pieces.push({ text: text.slice(at, from), demand: false });
    pieces.push({ text: text.slice(from, to), demand: true });
    at = to;
  }
  if (at < text.length) pieces.push({ text: text.slice(at), demand: false });
  return pieces;
}
