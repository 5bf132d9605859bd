/** A button that copies a text, as it was written; and a command with one. */

import { h } from '../core/element.js';
import { notify, storeOption } from '../core/state.js';
import { shownText } from './text.js';

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

/**
 * A command that a person may copy.
 * @param {readonly (string | number)[]} words of the command, not quoted yet; the store is added
 * @returns {HTMLElement}
 */
export function commandLine(words) {
  const store = storeOption();
  const whole = store === null ? words : [...words, '--store', store];
  const text = whole.map((word) => shellQuoted(String(word))).join(' ');
  // A name may hold characters that reorder what one reads; they are copied, but not shown.
  const shown = shownText(text);
  const code = h('code', { text: shown });
  return h('span', { class: 'command' }, code, copyButton(() => text, shown, code));
}

/** A word as a POSIX shell takes it back. @param {string} word */
export function shellQuoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}
