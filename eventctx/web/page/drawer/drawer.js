// `<ctx-drawer>`: what is after the message or the request at the cursor, in five tabs.

import { define, h } from '../core/element.js';
import { go, place } from '../core/place.js';
import { computed, untracked } from '../core/signals.js';
import { cursor, messageOf, timeline } from '../core/state.js';
import { tabRow } from '../parts/switches.js';
import { compactionPanel } from './compaction.js';
import { diffPanel } from './changes.js';
import { rawPanel, recordPanel } from './record.js';
import { whyPanel } from './why.js';

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
