/** Buttons that are pressed or not, and rows of tabs. */

import { h } from '../core/element.js';

/** @typedef {import('../core/element.js').Host} Host */

/** @param {Host} host @param {import('../core/element.js').Props} props @param {() => boolean} isOn read as a signal @param {() => void} press */
export function toggleButton(host, props, isOn, press) {
  const button = h('button', { type: 'button', ...props, class: `quiet ${props.class ?? ''}`.trim(), on: { click: press } });
  host.effect(() => button.setAttribute('aria-pressed', String(isOn())));
  return button;
}

/**
 * Tabs, one of them chosen; arrows, Home and End go from one to another.
 * @param {Host} host
 * @param {readonly (readonly [name: string, word: string, ...unknown[]])[]} tabs
 * @param {{label: string, class: string, id: string, panel: (name: string) => string, chosen: () => string,
 *   press: (name: string) => void, go: (name: string) => void}} use `id` begins the tabs' own, `panel`
 *   is the id of what a tab shows, `chosen` is read as a signal
 * @returns {HTMLElement}
 */
export function tabRow(host, tabs, { label, class: look, id, panel, chosen, press, go }) {
  const buttons = tabs.map(([name, word], at) => h('button', {
    type: 'button', role: 'tab', class: 'quiet', id: `${id}-${name}`, text: word, 'aria-controls': panel(name),
    on: { click: () => press(name), keydown: (/** @type {KeyboardEvent} */ event) => move(event, at) },
  }));
  host.effect(() => tabs.forEach(([name], at) => {
    buttons[at].setAttribute('aria-selected', String(name === chosen()));
    buttons[at].tabIndex = name === chosen() ? 0 : -1;
  }));
  return h('div', { role: 'tablist', 'aria-label': label, class: look }, buttons);

  /** @param {KeyboardEvent} event @param {number} at */
  function move(event, at) {
    const count = tabs.length;
    const moves = { ArrowRight: (at + 1) % count, ArrowLeft: (at + count - 1) % count, Home: 0, End: count - 1 };
    const to = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (to === undefined || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    go(tabs[to][0]);
    buttons[to].focus();
  }
}
