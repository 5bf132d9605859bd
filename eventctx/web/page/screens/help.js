/** `<ctx-help>`: all keys, in a dialog. The browser keeps the focus in it and gives it back. */

import { define, h } from '../core/element.js';
import { shortcuts, shownKey } from '../core/keys.js';
import { place } from '../core/place.js';

/** @typedef {import('../core/keys.js').Shortcut} Shortcut */

/** Keys of lists have no listener of the page: the list that has the focus takes them. @type {readonly (readonly [readonly string[], string])[]} */
const LIST_KEYS = [
  [['ArrowUp', 'ArrowDown'], 'Row before, row after'],
  [['k', 'j'], 'The same'],
  [['PageUp', 'PageDown'], 'A screen up, a screen down'],
  [['Home', 'End'], 'First row, last row'],
  [['Enter'], 'Open the row'],
];

define('ctx-help', (host) => {
  const keys = h('div', { class: 'help-keys' });
  const close = h('button', { type: 'button', text: 'Close', on: { click: () => dialog.close() } });
  const dialog = h(
    'dialog',
    { class: 'help', 'aria-labelledby': 'help-title' },
    h('header', null, h('h2', { id: 'help-title', text: 'Keys' }), close),
    keys,
  );
  // A click next to the dialog is a click on its backdrop, which belongs to the dialog.
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close();
  });
  host.effect(() => {
    keys.replaceChildren(...groupsOfKeys(shortcuts.value, place.value.screen));
  });
  host.replaceChildren(dialog);
});

/** Shows all keys. */
export function openHelp() {
  const dialog = document.querySelector('ctx-help dialog');
  if (dialog instanceof HTMLDialogElement && !dialog.open) dialog.showModal();
}

/** @param {readonly Shortcut[]} all @param {string} screen */
function groupsOfKeys(all, screen) {
  const here = all.filter((one) => one.screens?.includes(screen));
  const everywhere = all.filter((one) => one.screens === null);
  return [
    keyGroup('On this screen', rowsOfKeys(here)),
    keyGroup('Everywhere', rowsOfKeys(everywhere)),
    keyGroup('In a list', LIST_KEYS),
  ].filter((group) => group !== null);
}

/**
 * Keys that do the same stand in one row.
 * @param {readonly Shortcut[]} found
 * @returns {(readonly [string[], string])[]}
 */
function rowsOfKeys(found) {
  /** @type {Map<string, string[]>} */
  const rows = new Map();
  for (const { key, description } of found) {
    const keys = rows.get(description) ?? [];
    if (!keys.includes(key)) rows.set(description, [...keys, key]);
  }
  return [...rows].map(([description, keys]) => [keys, description]);
}

/** @param {string} title @param {readonly (readonly [readonly string[], string])[]} rows */
function keyGroup(title, rows) {
  if (rows.length === 0) return null;
  return h(
    'section',
    null,
    h('h3', { text: title }),
    h(
      'dl',
      null,
      rows.map(([keys, description]) =>
        h(
          'div',
          null,
          h('dt', null, keys.map((key) => h('kbd', { text: shownKey(key) }))),
          h('dd', { text: description }),
        ),
      ),
    ),
  );
}
