// `<ctx-drawer>`: what is after the message or the request at the cursor, in five tabs.

import { define, h } from '../core/element.js';
import { go, place } from '../core/place.js';
import { computed, untracked } from '../core/signals.js';
import { cursor, messageOf, timeline } from '../core/state.js';
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
  const tabs = DRAWER_TABS.map(([tab, word], at) => h('button', {
    type: 'button', role: 'tab', class: 'quiet', id: `drawer-tab-${tab}`, text: word,
    'aria-controls': 'drawer-panel',
    on: {
      // The tab that is open shuts the drawer.
      click: () => go({ tab: place.peek().tab === tab ? '' : tab }, { replace: true }),
      keydown: (/** @type {KeyboardEvent} */ event) => moveTab(event, at),
    },
  }));
  const list = h('div', { role: 'tablist', 'aria-label': 'Details', class: 'drawer-tabs' }, tabs);
  host.replaceChildren(list, panel);

  const open = computed(() => {
    const { tab } = place.value;
    return DRAWER_TABS.some(([name]) => name === tab) ? tab : 'why';
  });
  host.effect(() => {
    DRAWER_TABS.forEach(([name], at) => {
      const selected = name === open.value;
      tabs[at].setAttribute('aria-selected', String(selected));
      tabs[at].tabIndex = selected ? 0 : -1;
      if (selected) panel.setAttribute('aria-labelledby', tabs[at].id);
    });
  });

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

/** @param {KeyboardEvent} event @param {number} at */
function moveTab(event, at) {
  const count = DRAWER_TABS.length;
  const moves = { ArrowRight: (at + 1) % count, ArrowLeft: (at + count - 1) % count, Home: 0, End: count - 1 };
  const to = moves[/** @type {keyof typeof moves} */ (event.key)];
  if (to === undefined || event.shiftKey) return;
  event.preventDefault();
  event.stopPropagation();
  go({ tab: DRAWER_TABS[to][0] }, { replace: true });
  document.getElementById(`drawer-tab-${DRAWER_TABS[to][0]}`)?.focus();
}
