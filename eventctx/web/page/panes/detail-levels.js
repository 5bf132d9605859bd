// How much is shown of each group of messages: folded, one line, or whole; keys 1 to 5. A row may be
// unfolded or folded by itself. Texts are shown with their markup, or raw.

import { h } from '../core/element.js';
import { keepChoice, keptChoice } from '../core/kept.js';
import { onKey } from '../core/keys.js';
import { signal } from '../core/signals.js';
import { detail, GROUPS } from '../core/state.js';
import { toggleButton } from '../parts/switches.js';

/** @typedef {import('../core/element.js').Host} Host */
/** @typedef {import('../core/state.js').Group} Group */
/** @typedef {import('../core/state.js').Detail} Detail */

const LEVEL_WORDS = ['folded', 'one line', 'whole'];

/** @type {Readonly<Record<Group, string>>} */
const GROUP_WORDS = {
  system: 'system', person: 'person', model: 'model', result: 'results', summary: 'summaries',
};

/** Levels that a person chose for single rows, by the row's name. */
export const chosenLevels = signal(/** @type {ReadonlyMap<string, Detail>} */ (new Map()));

/** Whether texts are shown as they were written. */
export const raw = signal(false);

/** As it was when the page was left; the rows of another session are not these. */
export function restoreReading() {
  chosenLevels.value = new Map();
  raw.value = keptChoice('raw', false);
}

/** @param {string} row such as `t3` @param {Group} group @returns {Detail} */
export function levelOfRow(row, group) {
  return chosenLevels.peek().get(row) ?? detail.peek()[group];
}

/** Unfolds a row in its place, or folds it. @param {string} row @param {Group} group */
export function toggleRow(row, group) {
  const usual = detail.peek()[group];
  const to = levelOfRow(row, group) < 2 ? 2 : usual < 2 ? usual : 1;
  chosenLevels.value = new Map([...chosenLevels.peek(), [row, to]]);
}

/** The button in a row's head that unfolds it. @param {string} row @param {Group} group @param {string} what */
export function foldButton(row, group, what) {
  const isOpen = levelOfRow(row, group) === 2;
  return h('button', {
    type: 'button', class: 'fold quiet', 'aria-expanded': String(isOpen), 'aria-label': `${what}, all of it`,
    title: `${isOpen ? 'Fold' : 'Unfold'} (Enter)`, on: { click: () => toggleRow(row, group) },
  });
}

const HEAD_HEIGHT = 34;
const LINE_HEIGHT = 20;
/** Characters of a line, about; a row that is measured is known better. */
const LINE_CHARACTERS = 80;
/** A text is folded at so many lines; labels, arguments and gaps make it higher than its letters. */
const MOST_LINES = 60;

/** @param {Detail} level @param {number} characters */
export function estimatedHeight(level, characters) {
  if (level === 0) return HEAD_HEIGHT;
  if (level === 1) return HEAD_HEIGHT + LINE_HEIGHT;
  const lines = Math.min(MOST_LINES, Math.ceil(characters / LINE_CHARACTERS) + 1);
  return HEAD_HEIGHT + Math.max(1, lines) * LINE_HEIGHT;
}

/** One button a group, that goes to the next level. @param {Host} host */
export function detailSwitches(host) {
  const buttons = GROUPS.map((group) => {
    const level = h('span', { class: `level level-${detail.peek()[group]}`, 'aria-hidden': 'true' });
    const heard = h('span', { class: 'only-heard' });
    const button = h('button', {
      type: 'button', class: `quiet detail-switch g-${group}`,
      on: { click: () => nextLevel(group) },
    }, level, GROUP_WORDS[group], heard);
    host.effect(() => {
      const word = LEVEL_WORDS[detail.value[group]];
      level.className = `level level-${detail.value[group]}`;
      heard.textContent = `: ${word}`;
      button.title = `${word}; key ${GROUPS.indexOf(group) + 1}`;
    });
    return button;
  });
  return h('div', { class: 'detail-switches', role: 'group', 'aria-label': 'How much is shown' }, buttons,
    toggleButton(host, { class: 'detail-switch', text: 'raw', title: 'Texts as they were written; key r' }, () => raw.value, toggleRaw));
}

function toggleRaw() {
  raw.value = !raw.peek();
  keepChoice('raw', raw.peek());
}

/** @returns {() => void} takes the keys away */
export function listenToDetailKeys() {
  const ends = GROUPS.map((group, at) =>
    onKey(String(at + 1), `${GROUP_WORDS[group]}: folded, one line, whole`, () => nextLevel(group), {
      screen: 'session',
    }));
  ends.push(onKey('r', 'Texts raw, or with their markup', toggleRaw, { screen: 'session' }));
  return () => ends.forEach((end) => end());
}

/** @param {Group} group */
function nextLevel(group) {
  const now = detail.peek();
  chosenLevels.value = new Map();
  detail.value = { ...now, [group]: /** @type {Detail} */ ((now[group] + 1) % 3) };
}
