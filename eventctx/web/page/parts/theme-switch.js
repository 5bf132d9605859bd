/** The button for the theme: that of the system, light or dark. The choice outlives a reload. */

import { h } from '../core/element.js';
import { keepChoice, keptChoice } from '../core/kept.js';

/** @typedef {'system' | 'light' | 'dark'} Theme */

/** @type {Readonly<Record<Theme, readonly [sign: string, next: Theme]>>} */
const THEMES = { system: ['◐', 'light'], light: ['☀', 'dark'], dark: ['☾', 'system'] };

/** @returns {HTMLElement} */
export function themeSwitch() {
  const sign = h('span', { 'aria-hidden': 'true' });
  const button = h('button', { type: 'button', class: 'quiet', on: { click: () => show(THEMES[now][1]) } }, sign);
  let now = /** @type {Theme} */ (keptChoice('theme', 'system'));
  if (!Object.hasOwn(THEMES, now)) now = 'system';
  describe();
  return button;

  function describe() {
    const [character, next] = THEMES[now];
    sign.textContent = character;
    button.setAttribute('aria-label', `Theme: ${now}`);
    button.title = `Theme: ${now}. Click for ${next}.`;
  }

  /** @param {Theme} theme */
  function show(theme) {
    now = theme;
    keepChoice('theme', now);
    document.documentElement.style.colorScheme = now === 'system' ? '' : now;
    describe();
  }
}
