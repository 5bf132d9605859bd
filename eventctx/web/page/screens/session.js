// `<ctx-session>`: charts above, the transcript next to what was sent, and the drawer that explains.
// What is read gets the room: the charts shrink to a strip, and the drawer is shut until it is asked.

import {} from '../charts/overview.js';
import {} from '../charts/presence.js';
import {} from '../charts/river.js';
import {} from '../drawer/drawer.js';
import {} from '../panes/head.js';
import {} from '../panes/sent.js';
import {} from '../panes/transcript.js';
import {} from '../parts/virtual-list.js';
import { define, h } from '../core/element.js';
import { keepChoice, keptChoice } from '../core/kept.js';
import { onKey } from '../core/keys.js';
import { restoreReading } from '../panes/detail-levels.js';
import { limitTabStops, sessionKeys } from '../panes/session-keys.js';
import { go, place } from '../core/place.js';
import { tabRow, toggleButton } from '../parts/switches.js';
import { signal } from '../core/signals.js';

/** @typedef {import('../core/element.js').Host} Host */

/** @typedef {'charts'|'map'|'transcript'|'sent'|'details'} PanelName */

/** @type {readonly (readonly [PanelName, string])[]} */
const PANELS = [
  ['charts', 'Charts'], ['map', 'Map'], ['transcript', 'Transcript'], ['sent', 'Sent'], ['details', 'Details'],
];

/** Narrower than this, panels do not fit next to each other. */
const NARROW = '(max-width: 860px)';

define('ctx-session', (host) => {
  const narrow = matchMedia(NARROW);
  const isNarrow = signal(narrow.matches);
  const changed = () => (isNarrow.value = narrow.matches);
  narrow.addEventListener('change', changed);
  restoreReading();
  const usual = PANELS.map(([name]) => name).filter((name) => !narrow.matches || name !== 'charts');
  const shown = signal(/** @type {ReadonlySet<PanelName>} */ (new Set(keptChoice('panels', usual))));
  /** The one panel below the charts on a narrow screen. */
  const front = signal(/** @type {PanelName} */ ('transcript'));

  const panels = sessionPanels();
  const bars = splitters(host);
  const lists = h('div', { class: 'session-lists' }, panels.transcript, bars.sent, panels.sent);
  const right = h('div', { class: 'session-right' }, lists, bars.details, panels.details);
  const below = h('div', { class: 'session-panes' }, panels.map, bars.map, right);
  const switches = h('div', { class: 'panel-switches' });
  const panelButtons = h('div', { role: 'group', 'aria-label': 'Panels', class: 'panel-buttons' }, PANELS.map(([name, word]) =>
    toggleButton(host, { text: word }, () => shown.value.has(name), () => togglePanel(shown, name))));
  const narrowSwitches = [
    panelTabs(host, front, panels),
    toggleButton(host, { class: 'charts-switch', text: 'Charts', title: 'Charts whole, or as a strip; key v' },
      () => shown.value.has('charts'), () => toggleCharts(shown)),
  ];
  host.classList.add('session');
  host.replaceChildren(
    h('div', { class: 'session-top' }, h('ctx-head'), switches),
    panels.charts, bars.charts, below);

  host.effect(() => {
    const one = isNarrow.value;
    host.classList.toggle('is-narrow', one);
    const open = new Set(one ? [front.value, ...(shown.value.has('charts') ? ['charts'] : [])] : shown.value);
    for (const [name] of PANELS) panels[name].hidden = !open.has(name) && name !== 'charts';
    panels.charts.classList.toggle('is-strip', !open.has('charts'));
    for (const [name, bar] of Object.entries(bars)) bar.hidden = one || !open.has(name);
    bars.sent.hidden = one || !open.has('sent') || !open.has('transcript');
    lists.hidden = !open.has('transcript') && !open.has('sent');
    right.hidden = lists.hidden && !open.has('details');
    // A tab opens it: until then its tabs are all that is there of it.
    const isShut = !one && !lists.hidden && place.value.tab === '';
    panels.details.classList.toggle('is-shut', isShut);
    bars.map.hidden ||= right.hidden;
    bars.details.hidden ||= lists.hidden || isShut;
    // What is left alone takes all the space.
    host.classList.toggle('without-lists', lists.hidden);
    host.classList.toggle('without-right', right.hidden);
  });
  host.effect(() => {
    switches.replaceChildren(...(isNarrow.value ? narrowSwitches : [panelButtons]));
  });
  host.effect(() => {
    // Who asks why is shown why, also where it is a panel of its own.
    if (place.value.tab !== '') revealDetails();
  });
  const removeKeys = sessionKeys();
  const removeKey = onKey('v', 'Charts whole, or as a strip', () => toggleCharts(shown), { screen: 'session' });
  const endStops = limitTabStops(host);
  return () => {
    endStops();
    narrow.removeEventListener('change', changed);
    removeKeys();
    removeKey();
  };

  function revealDetails() {
    front.value = 'details';
    if (!shown.peek().has('details')) shown.value = new Set([...shown.peek(), 'details']);
  }
});

/** @returns {Record<PanelName, HTMLElement>} */
function sessionPanels() {
  return {
    charts: h('section', { class: 'panel session-charts', 'aria-label': 'Charts' },
      h('ctx-overview'), h('ctx-river')),
    map: h('section', { class: 'panel session-map', 'aria-label': 'Presence map', id: 'panel-map' },
      h('header', { class: 'pane-head' }, h('h2', { text: 'In view, when' })), h('ctx-presence')),
    transcript: h('section', { class: 'panel', 'aria-label': 'Transcript', id: 'panel-transcript' },
      h('ctx-transcript')),
    sent: h('section', { class: 'panel', 'aria-label': 'Sent to the model', id: 'panel-sent' }, h('ctx-sent')),
    details: h('section', { class: 'panel session-details', 'aria-label': 'Details', id: 'panel-details' },
      h('ctx-drawer')),
  };
}

/** @param {Host} host */
function splitters(host) {
  const wide = () => host.clientWidth || innerWidth;
  const high = () => host.clientHeight || innerHeight;
  return {
    charts: splitter(host, {
      label: 'the charts', vertical: false, grows: 1, variable: '--river-height',
      initial: innerHeight < 900 ? 117 : 180, least: 110, most: () => high() * 0.5,
    }),
    map: splitter(host, {
      label: 'the presence map', vertical: true, grows: 1, variable: '--map-width',
      initial: 270, least: 120, most: () => wide() * 0.5,
    }),
    sent: splitter(host, {
      label: 'what was sent', vertical: true, grows: -1, variable: '--sent-width',
      initial: Math.round(innerWidth * 0.4), least: 240, most: () => wide() * 0.7,
    }),
    details: splitter(host, {
      label: 'the details', vertical: false, grows: -1, variable: '--details-height',
      initial: 210, least: 90, most: () => high() * 0.7,
    }),
  };
}

/**
 * The charts and the map at once: all of them, or the strip alone.
 * @param {import('../core/signals.js').Signal<ReadonlySet<PanelName>>} shown
 */
function toggleCharts(shown) {
  const next = new Set(shown.peek());
  const areOpen = next.has('charts');
  for (const name of /** @type {PanelName[]} */ (['charts', 'map'])) {
    if (areOpen) next.delete(name);
    else next.add(name);
  }
  showPanels(shown, next);
}

/** @param {import('../core/signals.js').Signal<ReadonlySet<PanelName>>} shown @param {ReadonlySet<PanelName>} next */
function showPanels(shown, next) {
  shown.value = next;
  keepChoice('panels', [...next]);
}

/** @param {import('../core/signals.js').Signal<ReadonlySet<PanelName>>} shown @param {PanelName} name */
function togglePanel(shown, name) {
  const next = new Set(shown.peek());
  if (!next.delete(name)) next.add(name);
  showPanels(shown, next);
}

/** @param {Host} host @param {import('../core/signals.js').Signal<PanelName>} front @param {Record<PanelName, HTMLElement>} panels */
function panelTabs(host, front, panels) {
  const choose = (/** @type {string} */ name) => {
    front.value = /** @type {PanelName} */ (name);
    if (name !== 'details' && place.peek().tab !== '') go({ tab: '' }, { replace: true });
  };
  return tabRow(host, PANELS.filter(([name]) => name !== 'charts'), {
    label: 'Panels', class: 'panel-buttons', id: 'tab', panel: (name) => panels[/** @type {PanelName} */ (name)].id,
    chosen: () => front.value, press: choose, go: choose,
  });
}

/**
 * `vertical`: it stands upright and moves sideways. `grows` is 1 if the panel that it sizes lies
 * before it, -1 if after. `variable` is the custom property of `holder` with the panel's size.
 * @typedef {object} SplitterOptions
 * @property {string} label the panel that it sizes
 * @property {boolean} vertical
 * @property {1|-1} grows
 * @property {string} variable
 * @property {number} initial pixels
 * @property {number} least
 * @property {() => number} most
 */

const STEP = 16;

/** @param {HTMLElement} holder @param {SplitterOptions} options @returns {HTMLElement} */
function splitter(holder, options) {
  const { label, vertical, grows, variable, initial, least, most } = options;
  let size = keptChoice(variable, initial);
  const bar = h('div', {
    class: `splitter ${vertical ? 'is-vertical' : 'is-horizontal'}`, role: 'separator', tabindex: 0,
    'aria-orientation': vertical ? 'vertical' : 'horizontal', 'aria-label': `Size of ${label}`,
    title: 'Drag, or move with the arrow keys; double click for the usual size',
  });
  const set = (/** @type {number} */ wanted) => {
    const top = Math.max(least, most());
    size = Math.round(Math.max(least, Math.min(wanted, top)));
    holder.style.setProperty(variable, `${size}px`);
    bar.setAttribute('aria-valuemin', String(least));
    bar.setAttribute('aria-valuemax', String(Math.round(top)));
    bar.setAttribute('aria-valuenow', String(size));
  };
  const keep = () => keepChoice(variable, size);
  bar.addEventListener('keydown', (event) => {
    const [less, more] = vertical ? ['ArrowLeft', 'ArrowRight'] : ['ArrowUp', 'ArrowDown'];
    const by = event.key === more ? grows * STEP : event.key === less ? -grows * STEP : 0;
    if (event.key === 'Home') set(least);
    else if (event.key === 'End') set(most());
    else if (by === 0) return;
    else set(size + by);
    event.preventDefault();
    keep();
  });
  bar.addEventListener('dblclick', () => {
    set(initial);
    keep();
  });
  bar.addEventListener('pointerdown', (event) => {
    bar.setPointerCapture(event.pointerId);
    const from = vertical ? event.clientX : event.clientY;
    const before = size;
    const move = (/** @type {PointerEvent} */ now) =>
      set(before + grows * ((vertical ? now.clientX : now.clientY) - from));
    bar.addEventListener('pointermove', move);
    bar.addEventListener('lostpointercapture', () => {
      bar.removeEventListener('pointermove', move);
      keep();
    }, { once: true });
  });
  set(size);
  return bar;
}
