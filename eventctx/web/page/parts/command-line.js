/** A command that a person may copy, with a button that does it. */

import { h } from '../core/element.js';
import { shownText } from './text.js';
import { storeOption } from '../core/state.js';
import { copyButton } from './copying.js';

/**
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
