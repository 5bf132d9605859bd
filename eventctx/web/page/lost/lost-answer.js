/** The engine's answer to `lost`: instructions, files, commands, decisions, results, by state. */

import { h } from '../core/element.js';
import { countText, counted } from '../parts/numbers.js';
import { shownText } from '../parts/text.js';
import { linkTo } from '../core/place.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** An item of the answer, see `eventctx/queries/lost/answers.py`. @typedef {Record<string, any>} LostItem */

const ITEM_KINDS = /** @type {const} */ ([
  ['instruction', 'Instructions'],
  ['file', 'Files'],
  ['command', 'Commands'],
  ['decision', 'Decisions of the model'],
  ['result', 'Results that were used again'],
]);

/** Each state with its word and the pattern of the standing that is like it. */
const ITEM_STATES = /** @type {const} */ ({
  gone: ['gone', 'dropped'],
  summary: ['in the summary', 'summarised'],
  shortened: ['shortened', 'shortened'],
  whole: ['in view', 'whole'],
});

const ITEMS_AT_FIRST = 12;

/**
 * @param {Timeline} timeline
 * @param {any} answer
 * @returns {HTMLElement}
 */
export function lostAnswer(timeline, answer) {
  const { messages, items, counts } = answer;
  return h('div', { class: 'lost-answer' },
    h('p', { text: `${countText(messages.left)} of ${counted(messages.total, 'message')} are not in view${leftOf(messages.left_of)}.` }),
    ITEM_KINDS.map(([kind, title]) => {
      const count = counts.find((/** @type {any} */ one) => one.kind === kind);
      const own = items.filter((/** @type {LostItem} */ item) => item.kind === kind);
      return count === undefined || count.total === 0 ? null : itemSection(timeline, title, count, own);
    }),
  );
}

/** @type {Readonly<Record<string, string>>} */
const LEFT_WORDS = { person: 'of yours', model: 'of the model', tool: 'of tools', other: 'of the host' };

/** @param {Record<string, number>} by */
function leftOf(by) {
  const words = Object.entries(by)
    .filter(([, count]) => count > 0)
    .map(([who, count]) => `${countText(count)} ${LEFT_WORDS[who] ?? who}`);
  return words.length === 0 ? '' : ` (${words.join(', ')})`;
}

/**
 * @param {Timeline} timeline
 * @param {string} title
 * @param {Record<string, number>} count
 * @param {LostItem[]} items
 */
function itemSection(timeline, title, count, items) {
  const itemRow = (/** @type {LostItem} */ item) => rowOf(timeline, item);
  const away = items.filter(({ state }) => state !== 'whole');
  const list = h('ul', { class: 'lost-items' }, away.slice(0, ITEMS_AT_FIRST).map(itemRow));
  const rest = away.slice(ITEMS_AT_FIRST);
  const more = h('button', {
    type: 'button',
    class: 'quiet',
    text: `Show ${countText(rest.length)} more`,
    on: {
      click: () => {
        const rows = rest.map(itemRow);
        list.append(...rows);
        more.remove();
        rows[0].querySelector('a')?.focus();
      },
    },
  });
  return h('section', { class: 'lost-kind' },
    h('h3', null, title, ' ', h('span', { class: 'muted', text: statesText(count) })),
    away.length === 0 ? null : list,
    rest.length === 0 ? null : more,
  );
}

/** @param {Record<string, number>} count */
function statesText(count) {
  const words = Object.entries(ITEM_STATES)
    .filter(([state]) => count[state] > 0)
    .map(([state, [word]]) => `${countText(count[state])} ${word}`);
  return words.join(' · ');
}

/**
 * @param {Timeline} timeline
 * @param {LostItem} item
 */
function rowOf(timeline, item) {
  const [word, pattern] = ITEM_STATES[/** @type {keyof typeof ITEM_STATES} */ (item.state)];
  // The record that took it out comes before the first request without it.
  const fell = item.left ? timeline.requestAt(item.left.position) + 1 : -1;
  const at = timeline.requests.position[fell] ?? null;
  return h('li', null,
    h('span', { class: 'standing' },
      h('span', { class: `swatch st-${pattern}`, 'aria-hidden': 'true' }), h('span', { text: word })),
    h('a', { href: linkTo({ screen: 'session', message: item.number, at, tab: 'why' }), text: `#${item.number}` }),
    h('span', { class: 'item-text', text: shownText(item.text) }),
    h('span', { class: 'muted', text: useText(item) }),
  );
}

/** @param {LostItem} item */
function useText({ file, command, used_again: again, quoted }) {
  const words = [];
  if (file?.read) words.push(`read ${file.read}×`);
  if (file?.written) words.push(`written ${file.written}×`);
  if (file?.edited) words.push(`edited ${file.edited}×`);
  if (command?.runs > 1) words.push(`${command.runs} runs`);
  if (command?.failed) words.push(command.status === null ? 'failed' : `failed (${command.status})`);
  if (again) words.push(`used again ${again}×`);
  if (quoted?.length) words.push(shownText(quoted.slice(0, 3).join(', ')));
  return words.join(' · ');
}
