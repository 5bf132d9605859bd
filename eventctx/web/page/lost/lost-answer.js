/** The engine's answer to `lost`: instructions, files, commands, decisions, results, by state. */

import { h } from '../core/element.js';
import { capitalised, compactionSummary } from '../panes/why-words.js';
import { appendRows } from '../parts/more-rows.js';
import { countText, counted } from '../parts/numbers.js';
import { csvButton } from '../parts/saving.js';
import { shownText } from '../parts/text.js';
import { linkTo } from '../core/place.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('./choosing.js').Choice} Choice */

/** Each state with its word and the pattern of the standing that is like it. */
const ITEM_STATES = /** @type {const} */ ({
  gone: ['gone', 'dropped'],
  summary: ['in the summary', 'summarised'],
  shortened: ['shortened', 'shortened'],
  whole: ['in view', 'whole'],
});

const ITEMS_AT_FIRST = 12;
/** Of the one kind that a person chose. */
const CHOSEN_AT_FIRST = 500;

/**
 * @param {Timeline} timeline
 * @param {any} answer
 * @param {LostFilter} filter which is changed here, and kept for the next answer
 * @param {Choice} choice
 * @returns {HTMLElement}
 */
export function lostAnswer(timeline, answer, filter, choice) {
  const { messages, items, counts } = answer;
  const controls = h('div', { class: 'lost-filters' });
  const groups = h('div');
  const isAnyAway = items.some(isAway);
  const show = () => {
    // Where nothing left, the list is of what is there.
    const found = groupItems(timeline, items, { ...filter, whole: filter.whole || !isAnyAway });
    const shown = found.flatMap((group) => group.items);
    controls.replaceChildren(
      ...(isAnyAway ? [...filterNodes(items, filter, show), allButton(shown.filter(isAway), choice)] : []),
      csvButton('lost', () => shown));
    const most = filter.kind === null ? ITEMS_AT_FIRST : CHOSEN_AT_FIRST;
    groups.replaceChildren(...found.map((group) => itemSection(timeline, group, counts, choice, most)));
  };
  show();
  return h('div', { class: 'lost-answer' },
    h('p', { text: messages.left === 0 ? `All ${counted(messages.total, 'message')} are in view.` : `${countText(messages.left)} of ${counted(messages.total, 'message')} ${messages.left === 1 ? 'is' : 'are'} not in view${leftOf(messages.left_of)}.` }),
    items.length > 0 ? [controls, groups] : null,
  );
}

/** @param {LostItem} item */
function isAway(item) {
  return item.state !== 'whole';
}

/** @param {LostItem[]} items @param {LostFilter} filter @param {() => void} show */
function filterNodes(items, filter, show) {
  const away = (/** @type {string} */ kind) =>
    items.filter((item) => item.kind === kind && (filter.whole || isAway(item))).length;
  const kinds = ITEM_KINDS.filter(([kind]) => away(kind) > 0);
  // A kind of which this answer has nothing hides nothing.
  if (!kinds.some(([kind]) => kind === filter.kind)) filter.kind = null;
  const total = kinds.reduce((sum, [kind]) => sum + away(kind), 0);
  return [
    pressedButtons('Show', filter.kind, [
      [null, `All ${countText(total)}`],
      ...kinds.map(([kind, title]) => /** @type {const} */ ([kind, `${title.split(' ')[0]} ${countText(away(kind))}`])),
    ], (kind) => {
      filter.kind = kind;
      show();
    }),
    pressedButtons('Group by', filter.by, /** @type {['kind' | 'compaction', string][]} */ ([['kind', 'Kind'], ['compaction', 'Compaction']]), (by) => {
      filter.by = by;
      show();
    }),
    pressedButtons('List', filter.whole, /** @type {[boolean, string][]} */ ([[false, 'What left'], [true, 'All']]), (whole) => {
      filter.whole = whole;
      show();
    }),
  ];
}

/**
 * One of several, by buttons.
 *
 * @template T
 * @param {string} label
 * @param {T} chosen
 * @param {(readonly [T, string])[]} values
 * @param {(value: T) => void} choose
 */
function pressedButtons(label, chosen, values, choose) {
  return h('div', { role: 'group', 'aria-label': label, class: 'lost-filter' },
    h('span', { class: 'muted', 'aria-hidden': 'true', text: label }),
    values.map(([value, text]) => h('button', {
      type: 'button', 'aria-pressed': String(value === chosen), text,
      on: {
        click: () => {
          choose(value);
          // The button was made anew; the keyboard stays where it was.
          const again = document.querySelectorAll(`.lost-filter[aria-label="${label}"] button`);
          /** @type {HTMLElement | undefined} */ (again[values.findIndex(([one]) => one === value)])?.focus();
        },
      },
    })));
}

/** @param {LostItem[]} items @param {Choice} choice */
function allButton(items, choice) {
  return h('button', {
    type: 'button', class: 'quiet', text: `Choose these ${countText(items.length)}`,
    on: { click: () => choice.add(items.map(({ number }) => number)) },
  });
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
 * @param {ItemGroup} group
 * @param {Record<string, any>[]} counts of all items by kind
 * @param {Choice} choice
 * @param {number} most items that are shown before a person asks for the others
 */
function itemSection(timeline, { key, title, items: away }, counts, choice, most) {
  const count = counts.find((one) => one.kind === key) ?? countStates(away);
  const list = h('ul', { class: 'lost-items' });
  appendRows(list, away, (item) => rowOf(timeline, item, choice), { first: most, step: away.length });
  return h('section', { class: 'lost-kind' },
    h('h3', null, title, ' ', h('span', { class: 'muted', text: statesText(count) })),
    list,
  );
}

/** @param {LostItem[]} items @returns {Record<string, number>} */
function countStates(items) {
  /** @type {Record<string, number>} */
  const counts = {};
  for (const { state } of items) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

/** @param {Record<string, number>} count */
function statesText(count) {
  const words = Object.entries(ITEM_STATES)
    .filter(([state]) => count[state] > 0)
    .map(([state, [word]]) => `${countText(count[state])} ${word}`);
  return words.join(' · ');
}

/** @param {Timeline} timeline @param {LostItem} item @param {Choice} choice */
function rowOf(timeline, item, choice) {
  const [word, pattern] = ITEM_STATES[/** @type {keyof typeof ITEM_STATES} */ (item.state)];
  // The record that took it out comes before the first request without it.
  const fell = item.left ? timeline.requestAt(item.left.position) + 1 : -1;
  const at = timeline.requests.position[fell] ?? null;
  return h('li', null,
    isAway(item) ? choice.box(item.number, `Choose #${item.number} to bring it back: ${shownText(item.text)}`) : h('span'),
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
  if (file?.changed_after != null && file.last_read !== null) words.push(`read last in #${file.last_read}, changed in #${file.changed_after}`);
  if (command?.runs > 1) words.push(`${command.runs} runs`);
  if (command?.failed) words.push(command.status === null ? 'failed' : `failed (${command.status})`);
  if (again) words.push(`used again ${again}×`);
  if (quoted?.length) words.push(shownText(quoted.slice(0, 3).join(', ')));
  return words.join(' · ');
}

/** An item of the answer, see `eventctx/queries/lost/answers.py`. @typedef {Record<string, any>} LostItem */
/** One kind or all, what is `whole` in view too or not, under headings of kinds or of compactions.
 * @typedef {{kind: string | null, by: 'kind' | 'compaction', whole: boolean}} LostFilter */
/** `key` is the kind, or the cause. @typedef {{key: string, title: string, items: LostItem[]}} ItemGroup */

const ITEM_KINDS = /** @type {const} */ ([
  ['instruction', 'Instructions'],
  ['file', 'Files'],
  ['command', 'Commands'],
  ['decision', 'Decisions of the model'],
  ['result', 'Results that were used again'],
]);

/** What else takes a message out, as a heading. @type {Readonly<Record<string, string>>} */
const LEFT_BY = {
  compaction: 'A compaction',
  taken_back: 'Undone, as the imported file says',
  set: 'Replaced when the messages were set',
  clear: 'Taken out when the session was cleared',
  replaced: 'Replaced by the host’s own system prompt',
  erased: 'Erased',
  unanswered: 'Results of calls that are not in view',
  provider: 'Cleared by the provider',
};

/**
 * Items that are not in view whole, or all, in groups that are not empty. Groups by compaction are in the
 * order of their compactions; other causes come after them.
 *
 * @param {Timeline} timeline
 * @param {LostItem[]} items
 * @param {LostFilter} filter
 * @returns {ItemGroup[]}
 */
export function groupItems(timeline, items, { kind, by, whole }) {
  const away = items.filter((item) => (whole || isAway(item)) && (kind === null || item.kind === kind));
  if (by === 'kind') {
    return ITEM_KINDS
      .map(([key, title]) => ({ key, title, items: away.filter((item) => item.kind === key) }))
      .filter((group) => group.items.length > 0);
  }
  /** @type {Map<string, ItemGroup & {rank: number}>} */
  const groups = new Map();
  for (const item of away) {
    const number = item.left?.compaction ?? null;
    const key = number === null ? item.left?.by ?? 'in view' : `compaction ${number}`;
    /** @type {ItemGroup & {rank: number}} */
    const group = groups.get(key)
      ?? { key, title: causeTitle(timeline, item, number), items: [], rank: number ?? Infinity };
    groups.set(key, group);
    group.items.push(item);
  }
  return [...groups.values()].sort((a, b) => (a.rank === b.rank ? 0 : a.rank - b.rank));
}

/** @param {Timeline} timeline @param {LostItem} item @param {number | null} number of the compaction */
function causeTitle(timeline, item, number) {
  if (!item.left) return 'In view, or a part of it';
  if (number === null) return LEFT_BY[item.left.by] ?? item.left.by;
  const index = timeline.compactions.findIndex((one) => one.number === number);
  return index < 0 ? `Compaction ${number}` : capitalised(compactionSummary(timeline, index));
}
