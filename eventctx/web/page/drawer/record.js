// The tabs Record and Raw JSON: the log's own records, and a message as it stands in the log.

import { h } from '../core/element.js';
import { standingAt } from '../parts/standing.js';
import { shownText, textView } from '../parts/text.js';
import { copyButton } from '../parts/copying.js';
import { source } from '../core/state.js';
import { bodyOf } from '../panes/bodies.js';
import { jsonView } from '../panes/message.js';

/** @typedef {import('./drawer.js').DrawerSubject} DrawerSubject */

/** @param {DrawerSubject} subject @param {HTMLElement} panel */
export async function recordPanel(subject, panel) {
  const { now, alive } = subject;
  const wanted = recordsOf(subject);
  if (!source.can.answers) {
    panel.replaceChildren(
      h('p', { class: 'muted', text: 'An exported page holds no records. What they are:' }),
      h('ul', { class: 'plain' }, wanted.map(([what, position]) => h('li', { text: `@${position}: ${what}` }))));
    return;
  }
  panel.replaceChildren(h('p', { class: 'muted', text: 'Reading the log …' }));
  const answers = await Promise.all(wanted.map(([, position]) =>
    source.answer(now.session, 'log', { start: position, stop: position })));
  if (!alive()) return;
  panel.replaceChildren(...wanted.map(([what, position], at) => recordView(what, position, firstOf(answers[at]))));
}

/**
 * The records that matter here: of the message, of what changed it, of the request.
 * @param {DrawerSubject} subject
 * @returns {[string, number][]}
 */
function recordsOf({ now, request, message }) {
  /** @type {[string, number][]} */
  const wanted = [];
  if (message !== null && message < now.messages.count) {
    wanted.push([`message #${message} was added`, now.messages.position[message]]);
    const { change } = standingAt(now, message, request);
    if (change >= 0) wanted.push(['what changed its place in the view', now.changes.position[change]]);
  }
  wanted.push([`request ${now.name(request)}`, now.requests.position[request]]);
  return wanted;
}

/** @param {any} answer records as a list, or under a key */
function firstOf(answer) {
  const records = Array.isArray(answer) ? answer : answer?.records;
  return Array.isArray(records) ? records[0] ?? null : answer;
}

/** @param {string} what @param {number} position @param {any} record */
function recordView(what, position, record) {
  const title = `@${position} ${record?.type ?? ''}`;
  return h('section', { class: 'record' },
    h('h3', null, h('span', { class: 'mono', text: shownText(title) }), h('span', { class: 'muted', text: what })),
    record === null ? h('p', { class: 'muted', text: 'The record is not there.' }) : jsonView(record));
}

/** @param {DrawerSubject} subject @param {HTMLElement} panel */
export async function rawPanel(subject, panel) {
  const { now, request, message, alive } = subject;
  if (message === null || message >= now.messages.count) {
    const columns = Object.entries(/** @type {Record<string, any>} */ (now.requests));
    const row = Object.fromEntries(columns
      .filter(([name]) => name !== 'count').map(([name, column]) => [name, column[request]]));
    showJson(panel, `the columns of request ${now.name(request)}`, row);
    return;
  }
  const { extra } = standingAt(now, message, request);
  const { position, index } = now.messages;
  const body = await bodyOf(now.session, { position: position[message], index: index[message] });
  if (!alive()) return;
  showJson(panel, `message #${message} as it was added`, body);
  const shown = extra === null ? null : now.entry(extra);
  if (shown === null || shown.kind !== 'shortened' || shown.position === null || shown.index === null) return;
  const short = await bodyOf(now.session, { position: shown.position, index: shown.index });
  if (alive()) panel.append(...jsonNodes('as it was sent, shortened', short));
}

/** @param {HTMLElement} panel @param {string} what @param {any} value */
function showJson(panel, what, value) {
  panel.replaceChildren(...jsonNodes(what, value));
}

/** @param {string} what @param {any} value */
function jsonNodes(what, value) {
  if (value === null) return [h('p', { class: 'muted', text: `${what}: its contents were erased.` })];
  const text = JSON.stringify(value, null, 2);
  const view = textView(text, { class: 'data' });
  return [h('p', { class: 'raw-head' }, h('span', { class: 'muted', text: what }), copyButton(() => text, what, view)), view];
}
