/**
 * Keys of the whole page: each with what it does, so that `?` and the reference can list them.
 *
 * A key acts unless a field, a widget with keys of its own, or an open dialog has it first.
 * Written as the browser names them, with `Shift+` before keys that Shift does not change.
 */

import { place } from './place.js';
import { signal } from './signals.js';

/** @typedef {{key: string, description: string, screens: readonly string[] | null,
 *   handler: (event: KeyboardEvent) => void | boolean}} Shortcut */

/** @type {import('./signals.js').Signal<readonly Shortcut[]>} */
export const shortcuts = signal(/** @type {readonly Shortcut[]} */ ([]));

/**
 * @param {string} key such as 'ArrowLeft', 'Shift+ArrowLeft', 'j', '/', ' '
 * @param {string} description what it does, in a few words
 * @param {(event: KeyboardEvent) => void | boolean} handler false: the key keeps its own meaning
 * @param {{screen?: string | readonly string[]}} [options] where it acts; everywhere without
 * @returns {() => void} takes it away
 */
export function onKey(key, description, handler, { screen } = {}) {
  const screens = screen === undefined ? null : typeof screen === 'string' ? [screen] : screen;
  const added = { key, description, screens, handler };
  shortcuts.value = [...shortcuts.peek(), added];
  return () => {
    shortcuts.value = shortcuts.peek().filter((one) => one !== added);
  };
}

/** Listens from now on. */
export function startKeys() {
  document.addEventListener('keydown', act);
}

/** @param {KeyboardEvent} event */
function act(event) {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (belongsToTarget(event)) return;
  const pressed = nameOfKey(event);
  const screen = place.peek().screen;
  // The one that was added last is the nearest to what the person sees.
  const found = shortcuts
    .peek()
    .findLast((one) => one.key === pressed && (one.screens?.includes(screen) ?? true));
  if (found !== undefined && found.handler(event) !== false) event.preventDefault();
}

/**
 * Shift is named only where it does not already make another character.
 * @param {{key: string, shiftKey: boolean}} event
 */
export function nameOfKey({ key, shiftKey }) {
  return shiftKey && key.length > 1 ? `Shift+${key}` : key;
}

/** @type {Readonly<Record<string, string>>} */
const SHOWN_KEYS = {
  ArrowLeft: '←',
  ArrowRight: '→',
  ArrowUp: '↑',
  ArrowDown: '↓',
  ' ': 'Space',
  Escape: 'Esc',
};

/** A key as a person reads it on a keyboard. @param {string} key */
export function shownKey(key) {
  const [last, ...before] = key.split('+').reverse();
  if (last === undefined || last === '') return key;
  return [...before.reverse(), SHOWN_KEYS[last] ?? last].join('+');
}

/** @param {KeyboardEvent} event */
function belongsToTarget(event) {
  const target = event.target instanceof Element ? event.target : null;
  if (target === null) return false;
  if (target.closest('input, textarea, select, [contenteditable]') !== null) {
    // Escape leaves a field, too. A box that is ticked needs nothing but the blank.
    if (event.key === 'Escape') return target.closest('dialog[open]') !== null;
    return !(target instanceof HTMLInputElement && target.type === 'checkbox') || event.key === ' ';
  }
  // A modal dialog covers the page: its keys must not move what lies beneath.
  if (target.closest('dialog[open]') !== null) return true;
  const presses = event.key === ' ' || event.key === 'Enter';
  return presses && target.closest('button, a, summary, [role=button], [role=tab]') !== null;
}
