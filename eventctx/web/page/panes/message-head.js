// What is known of a message without its text: who it is of, how large, and what became of it.

import { h } from '../core/element.js';
import { kindWord, standingMark } from '../parts/standing.js';
import { clockText, tokensText, utcText } from '../parts/numbers.js';
import { linkTo } from '../core/place.js';
import { GROUPS } from '../core/state.js';
import { lastNotAbove } from '../timeline/columns.js';
import { groupOf } from '../timeline/groups.js';
import { IMPORTED } from './why-words.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('../core/state.js').Group} Group */

/** The group of the screen that a group of the log belongs to. @param {number} code @returns {Group} */
export function screenGroup(code) {
  return GROUPS[groupOf(code)] ?? 'system';
}

/** @param {number} number @returns {HTMLElement} a link that selects the message */
export function messageLink(number) {
  return h('a', {
    class: 'message-number', href: linkTo({ screen: 'session', message: number }), text: `#${number}`,
  });
}

/**
 * @param {Timeline} timeline
 * @param {number} number
 * @param {{what: string, change: number}} standing at the cursor
 * @param {readonly number[]} results numbers of the results of its calls
 * @param {HTMLElement} fold the button that unfolds the row
 * @returns {HTMLElement}
 */
export function messageHead(timeline, number, { what, change }, results, fold) {
  const { kind, tokens, caller } = timeline.messages;
  return h('div', { class: 'row-head' },
    fold,
    messageLink(number),
    h('span', { class: 'row-kind', text: kindWord(kind[number]) }),
    standingMark(what),
    reasonCode(timeline, change),
    caller[number] < 0 ? null : jumpTo('call', '↑', caller[number]),
    results.slice(0, 4).map((one) => jumpTo('result', '↓', one)),
    linksAt(timeline, number),
    whenSaid(timeline, number),
    h('span', { class: 'row-tokens', text: `${tokensText(tokens[number], true)}`, title: 'tokens, estimated' }),
  );
}

/** The clock; nothing where all messages have one time, which then is the file's or the import's. @param {Timeline} timeline @param {number} number */
function whenSaid(timeline, number) {
  const { time, count } = timeline.messages;
  if (time[0] === time[count - 1]) return null;
  return h('time', { class: 'row-time', text: clockText(time[number]), title: utcText(time[number]) });
}

/** @param {Timeline} timeline @param {number} change */
function reasonCode(timeline, change) {
  const reason = change < 0 ? -1 : timeline.changes.reason[change];
  if (reason < 0) return null;
  const { code, rule } = timeline.reasons[reason];
  if (code === IMPORTED) return null;
  return h('span', { class: 'row-reason', text: code, title: rule });
}

/** @param {string} word @param {string} arrow @param {number} number */
function jumpTo(word, arrow, number) {
  return h('a', {
    class: 'jump', href: linkTo({ screen: 'session', message: number }), text: `${arrow} ${word} #${number}`,
  });
}

/**
 * Sessions that began at a message: a subagent at the call, a fork after the message's record.
 * @param {Timeline} timeline
 * @param {number} number
 */
function linksAt(timeline, number) {
  const at = linksByMessage(timeline).get(number) ?? [];
  return at.map((/** @type {Timeline['links'][number]} */ link) => h('a', {
    class: 'jump other-session', href: linkTo({ session: link.session }),
    text: `→ ${link.kind ?? link.relation}`, title: link.session,
  }));
}

/** @type {WeakMap<Timeline, {count: number, messages: number, links: Map<number, any[]>}>} */
const linkCache = new WeakMap();

/** @param {Timeline} timeline */
function linksByMessage(timeline) {
  const known = linkCache.get(timeline);
  const { links, messages } = timeline;
  if (known?.count === links.length && known.messages === messages.count) return known.links;
  const found = new Map();
  for (const link of links) {
    if (link.relation === 'parent') continue;
    const number = (link.call_id === null ? undefined : timeline.calls[link.call_id])
      ?? lastNotAbove(messages.position, link.position);
    found.set(number, [...(found.get(number) ?? []), link]);
  }
  linkCache.set(timeline, { count: links.length, messages: messages.count, links: found });
  return found;
}

/**
 * `9,812 → ~600 tokens`, for an entry that shows less than was added.
 * @param {Timeline} timeline
 * @param {number} number
 * @param {number} shown
 */
export function sizeChange(timeline, number, shown) {
  return `${tokensText(timeline.messages.tokens[number], true)} → ${tokensText(shown, true)} tokens`;
}

/** @param {readonly (readonly [number, number])[]} runs @returns {string} `#1–#3, #7` */
export function runsText(runs) {
  return runs.map(([first, last]) => (first === last ? `#${first}` : `#${first}–#${last}`)).join(', ');
}

/** @param {readonly number[]} numbers in rising order @returns {[number, number][]} */
export function runsOfNumbers(numbers) {
  /** @type {[number, number][]} */
  const runs = [];
  for (const number of numbers) {
    const run = runs.at(-1);
    if (run !== undefined && run[1] === number - 1) run[1] = number;
    else runs.push([number, number]);
  }
  return runs;
}
