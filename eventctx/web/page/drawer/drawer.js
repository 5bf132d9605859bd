// `<ctx-drawer>`: what is after the message or the request at the cursor, in five tabs.

import { define, h } from '../core/element.js';
import { go, place } from '../core/place.js';
import { computed, untracked } from '../core/signals.js';
import { cursor, messageOf, timeline, source } from '../core/state.js';
import { tabRow } from '../parts/switches.js';
import { compactionPanel } from './compaction.js';
import { diffPanel } from './changes.js';
import { whyPanel } from './why.js';
import { standingAt } from '../parts/standing.js';
import { shownText, textView } from '../parts/text.js';
import { copyButton } from '../parts/copying.js';
import { bodyOf } from '../panes/bodies.js';
import { jsonView } from '../panes/message.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/**
 * What a tab is about. `alive` says whether the panel still stands: an answer that comes later is
 * thrown away.
 * @typedef {{now: Timeline, request: number, message: number|null, alive: () => boolean}} DrawerSubject
 * @typedef {(subject: DrawerSubject, panel: HTMLElement) => void|Promise<void>} DrawerPanel
 */

/** @type {readonly (readonly [string, string, DrawerPanel])[]} */
const DRAWER_TABS = [
  ['why', 'Why', whyPanel],
  ['compaction', 'Compaction', compactionPanel],
  ['diff', 'Diff', diffPanel],
  ['record', 'Record', recordPanel],
  ['raw', 'Raw JSON', rawPanel],
];

define('ctx-drawer', (host) => {
  const panel = h('div', { class: 'drawer-panel', role: 'tabpanel', id: 'drawer-panel', tabindex: 0 });
  const open = computed(() => {
    const { tab } = place.value;
    return DRAWER_TABS.some(([name]) => name === tab) ? tab : 'why';
  });
  const show = (/** @type {string} */ tab) => go({ tab }, { replace: true });
  const tabs = tabRow(host, DRAWER_TABS, {
    label: 'Details', class: 'drawer-tabs', id: 'drawer-tab', panel: () => panel.id, chosen: () => open.value, go: show,
    // The tab that is open shuts the drawer.
    press: (tab) => show(place.peek().tab === tab ? '' : tab),
  });
  host.effect(() => panel.setAttribute('aria-labelledby', `drawer-tab-${open.value}`));
  host.replaceChildren(tabs, panel);

  let shown = '';
  host.effect(() => {
    const now = timeline.value;
    if (now === null) return undefined;
    const request = cursor.value;
    const { message } = place.value;
    const tab = open.value;
    // A session that grows does not draw again what reads the same.
    const subject = `${now.session} ${request} ${message} ${tab}`;
    if (request < 0) {
      panel.replaceChildren(h('p', { class: 'muted', text: 'Nothing was sent yet.' }));
      return undefined;
    }
    let alive = true;
    untracked(() => {
      if (subject === shown && panel.childElementCount > 0) return;
      shown = subject;
      void showPanel(tab, { now, request, message, alive: () => shown === subject && alive }, panel);
    });
    return () => {
      alive = panel.isConnected;
    };
  });
});

/** @param {string} tab @param {DrawerSubject} subject @param {HTMLElement} panel */
async function showPanel(tab, subject, panel) {
  const draw = DRAWER_TABS.find(([name]) => name === tab)?.[2] ?? whyPanel;
  panel.scrollTop = 0;
  try {
    await draw(subject, panel);
  } catch (error) {
    if (subject.alive()) panel.append(h('p', { class: 'bad', text: `This could not be read: ${messageOf(error)}` }));
  }
}

/** The log's own records. @param {DrawerSubject} subject @param {HTMLElement} panel */
async function recordPanel(subject, panel) {
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

/** A message as it stands in the log. @param {DrawerSubject} subject @param {HTMLElement} panel */
async function rawPanel(subject, panel) {
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
