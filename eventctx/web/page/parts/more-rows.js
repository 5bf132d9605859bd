/** The first rows of a long list, and a button that shows more of it. */

import { h } from '../core/element.js';
import { countText } from './numbers.js';

/**
 * Appends a row for each of the first items to a list; the button stands after them, and goes away
 * when all are there.
 * @template T
 * @param {HTMLElement} list
 * @param {readonly T[]} items
 * @param {(item: T) => Node} rowOf
 * @param {{first: number, step: number}} count of rows at first, and of those that one press adds
 */
export function appendRows(list, items, rowOf, { first, step }) {
  const rows = items.slice(0, first).map(rowOf);
  list.append(...rows);
  const rest = items.slice(first);
  if (rest.length === 0) return rows;
  const text = rest.length > step ? `Show ${countText(step)} of ${countText(rest.length)} more` : `Show ${countText(rest.length)} more`;
  const more = h('button', { type: 'button', class: 'quiet more', text });
  const last = list.localName === 'ul' ? h('li', null, more) : more;
  more.addEventListener('click', () => {
    last.remove();
    const [next] = appendRows(list, rest, rowOf, { first: step, step });
    // Who came by keyboard goes on with what is new.
    if (next instanceof Element) /** @type {HTMLElement | null} */ (next.querySelector('a, input, summary'))?.focus();
  });
  list.append(last);
  return rows;
}
