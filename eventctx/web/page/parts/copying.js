/** A button that copies a text, as it was written. */

import { h } from '../core/element.js';
import { notify } from '../core/state.js';

/**
 * @param {() => string} text
 * @param {string} what it is, for those who hear the page
 * @param {HTMLElement} shown where the text stands
 * @returns {HTMLElement}
 */
export function copyButton(text, what, shown) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      notify('Copied.');
    } catch {
      // The browser may forbid it: then the person copies what is selected.
      getSelection()?.selectAllChildren(shown);
      notify('Selected: copy it with the keyboard.');
    }
  };
  return h('button', {
    type: 'button', class: 'quiet copy', 'aria-label': `Copy: ${what}`, text: 'Copy', on: { click: () => void copy() },
  });
}
