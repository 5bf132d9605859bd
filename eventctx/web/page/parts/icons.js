/** Signs that stand for themselves in a line of text: characters, with a word for who hears them. */

import { h } from '../core/element.js';

/** @type {Readonly<Record<string, string>>} */
const ICONS = {
  compaction: '▼',
  warning: '⚠',
  verified: '✓',
  live: '●',
  origin: '↳',
  previous: '◀',
  next: '▶',
  play: '▶',
  pause: '❚❚',
  open: '▸',
  opened: '▾',
};

/** @typedef {'compaction' | 'warning' | 'verified' | 'live' | 'origin' | 'previous' | 'next' | 'play' | 'pause' | 'open' | 'opened'} IconName */

/**
 * @param {IconName} name
 * @param {string} [word] read aloud in its place; without one the icon is decoration
 * @returns {HTMLElement}
 */
export function icon(name, word = '') {
  const sign = h('span', { class: `icon icon-${name}`, 'aria-hidden': 'true', text: ICONS[name] ?? '' });
  if (word === '') return sign;
  return h('span', { title: word }, sign, h('span', { class: 'only-heard', text: word }));
}
