// Texts that a client put into a person's message before it sent it (reminders, environment). They
// are folded to a line each, so that the person's own words stand out.

import { h } from '../core/element.js';
import { countText } from '../parts/numbers.js';
import { firstLine, textView } from '../parts/text.js';

/** @typedef {import('./message-blocks.js').MessagePart} MessagePart */

/**
 * A run of characters (code points, the end exclusive) of the text at `place`.
 * @typedef {{place: (string|number)[], start: number, end: number}} InjectedText
 */

/**
 * The text of a part with the injected runs folded; null if there are none in it.
 * @param {MessagePart} part
 * @param {readonly InjectedText[]} injected
 * @returns {HTMLElement|null}
 */
export function injectedText(part, injected) {
  const place = JSON.stringify(part.place);
  const here = injected.filter((one) => JSON.stringify(one.place) === place);
  if (here.length === 0) return null;
  const view = h('div', { class: 'part words' });
  for (const { text, isInjected } of injectedPieces(part.value, here)) {
    if (!isInjected) {
      if (text.trim() !== '') view.append(textView(text));
      continue;
    }
    view.append(h('details', { class: 'injected' },
      h('summary', null,
        h('span', { class: 'part-title', text: 'put in by the program' }),
        h('span', { class: 'part-note', text: `${countText(text.length)} characters` }),
        h('span', { class: 'begins', text: firstLine(text, 80) }),
      ),
      textView(text),
    ));
  }
  return view;
}

/**
 * A text cut at the borders of the runs.
 * @param {string} text
 * @param {readonly InjectedText[]} runs
 * @returns {{text: string, isInjected: boolean}[]}
 */
export function injectedPieces(text, runs) {
  // The log counts code points, a string of this language UTF-16 units.
  const characters = /[\ud800-\udbff]/.test(text) ? Array.from(text) : null;
  const length = characters === null ? text.length : characters.length;
  /** @type {(from: number, to: number) => string} */
  const cut = (from, to) =>
    characters === null ? text.slice(from, to) : characters.slice(from, to).join('');
  const pieces = [];
  let at = 0;
  for (const run of [...runs].sort((a, b) => a.start - b.start)) {
    const start = Math.max(at, Math.min(run.start, length));
    const end = Math.max(start, Math.min(run.end, length));
    if (start > at) pieces.push({ text: cut(at, start), isInjected: false });
    if (end > start) pieces.push({ text: cut(start, end), isInjected: true });
    at = end;
  }
  if (at < length) pieces.push({ text: cut(at, length), isInjected: false });
  return pieces;
}
