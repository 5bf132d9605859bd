/**
 * The presence map: messages from top to bottom, requests from left to right, each cell what became
 * of that message there. It answers "when was this in view".
 *
 * It is a grid for the keyboard: arrows move a cell, Enter opens it. Scrolling is the browser's own;
 * the canvas stays in its place and paints the rows that are to be seen.
 */

import { define, h } from '../core/element.js';
import { place } from '../core/place.js';
import { batch, computed, signal } from '../core/signals.js';
import { cursor, showRequests, shownWindow, timeline } from '../core/state.js';
import { windowWith } from '../core/request-window.js';
import { cliffsOf } from './river-shape.js';
import { paintLegend, writeText, legendItem } from './legend.js';
import { palette } from './palette.js';
import { usePointer, oncePerFrame, inSlices, freshCanvas, makeSurface } from './surface.js';
import { cellByKey, openCell, spokenCell } from './presence-cell.js';
import { paintPresence, paintPresenceCursor, paintStanding } from './presence-paint.js';
import {
  cellAt, firstScale, messagesOfRow, offsetToShow, PRESENCE_EDGE, presenceShape, rowScales,
} from './presence-shape.js';
import { standingWord } from '../parts/standing.js';
import { STANDING_STYLES } from './patterns.js';
import { presenceRuns } from '../timeline/presence.js';

/** @typedef {import('./presence-cell.js').PresenceCell} PresenceCell */
/** @typedef {import('./presence-shape.js').PresenceRun} PresenceRun */

/** @typedef {ReturnType<typeof presenceModel>} PresenceModel */

define('ctx-presence', (host) => {
  const surface = makeSurface('presence-surface');
  const model = presenceModel(surface.size);
  const cells = [focusCell('one'), focusCell('two')];
  const tall = h('div', { class: 'presence-tall', role: 'presentation' }, surface.box);
  const grid = h(
    'div',
    { class: 'presence-grid', role: 'grid', tabindex: '0', 'aria-label': 'Presence of messages in requests' },
    [...cells.map(({ row }) => row), tall],
  );
  const line = h('p', { class: 'chart-line' });
  const { list, items, show } = presenceLegend();
  host.replaceChildren(h('div', { class: 'chart-head' }, zoomButtons(model, grid), line, list), grid);

  const maker = runsMaker(model);
  host.effect(maker.follow);
  const paint = oncePerFrame(() => paintMap(surface, model));
  host.effect(() => {
    for (const one of [model.shape, model.runs, palette]) one.value;
    paint.ask();
  });
  host.effect(() => paintMoving(surface, model));
  host.effect(() => paintLegend(items));
  host.effect(() => show(model.runs.value));
  host.effect(() => {
    tall.style.setProperty('--height', `${model.height.value}px`);
  });
  host.effect(() => sayCell(model, grid, cells, line));
  host.effect(() => showWindow(model, grid));
  let looked = /** @type {number | null} */ (null);
  host.effect(() => {
    const { message } = place.value;
    // Only another message: who scrolled away from this one wants to be there.
    if (message !== null && message !== looked) showMessage(model, grid, message);
    looked = message;
  });
  grid.addEventListener('scroll', () => (model.offset.value = grid.scrollTop), { passive: true });
  grid.addEventListener('keydown', (event) => cellKey(event, model, grid));
  grid.addEventListener('focus', () => (model.focused.value = true));
  grid.addEventListener('blur', () => (model.focused.value = false));
  grid.addEventListener('wheel', (event) => wheelZoom(event, model, grid), { passive: false });
  const endPointer = usePointer(surface.box, mapPointer(model));
  return () => {
    endPointer();
    maker.end();
    paint.end();
    surface.end();
  };
});

/**
 * What the map shows, and of what it follows.
 * @param {import('../core/signals.js').Signal<import('./surface.js').Size>} size
 */
function presenceModel(size) {
  const offset = signal(0);
  /** null: nobody chose one. */
  const chosen = signal(/** @type {number | null} */ (null));
  const runs = signal(/** @type {readonly PresenceRun[]} */ ([]));
  const cell = signal(/** @type {PresenceCell | null} */ (null));
  const over = signal(/** @type {PresenceCell | null} */ (null));
  const focused = signal(false);
  const count = computed(() => {
    timeline.value?.version.value;
    return timeline.value?.messages.count ?? 0;
  });
  const scales = computed(() => rowScales(count.value, size.value.height - 2 * PRESENCE_EDGE));
  const level = computed(() => {
    const [first, last] = shownWindow.value;
    const { last: added } = timeline.value?.requests ?? { last: [] };
    const news = (added[last] ?? 0) - (added[first] ?? 0) + 1;
    return Math.min(chosen.value ?? firstScale(scales.value, news, size.value.height - 2 * PRESENCE_EDGE), scales.value.length - 1);
  });
  const scale = computed(() => scales.value[level.value] ?? { perRow: 1, pixels: 1 });
  const shape = computed(() =>
    size.value.width < 100 || timeline.value === null
      ? null
      : presenceShape(size.value, shownWindow.value, { count: count.value, scale: scale.value, offset: offset.value }),
  );
  /** Of all rows, with the edges above and below. */
  const height = computed(() => Math.ceil(count.value / scale.value.perRow) * scale.value.pixels + 2 * PRESENCE_EDGE);
  return { size, offset, chosen, level, runs, cell, over, focused, scales, scale, shape, height };
}

/** @param {string} name */
function focusCell(name) {
  const cell = h('div', { role: 'gridcell', id: `presence-cell-${name}` });
  const row = h('div', { role: 'row', class: 'only-heard' }, cell);
  return { row, cell };
}

/** @param {import('./surface.js').Surface} surface @param {PresenceModel} model */
function paintMap({ chart, size }, { shape, runs }) {
  freshCanvas(chart, size.peek());
  const [now, where] = [timeline.peek(), shape.peek()];
  if (now === null || where === null || now.messages.count === 0) return;
  const cliffs = cliffsOf(now.compactions, (position) => now.requestAt(position));
  paintPresence(chart, { timeline: now, runs: runs.peek(), shape: where, colours: palette.peek(), cliffs });
}

/** @param {import('./surface.js').Surface} surface @param {PresenceModel} model */
function paintMoving({ over: context, size }, { shape, cell, over, focused }) {
  const [where, colours] = [shape.value, palette.value];
  freshCanvas(context, size.value);
  if (where === null) return;
  /** @param {PresenceCell | null} one */
  const placed = (one) => one && { row: Math.floor(one.message / where.scale.perRow), request: one.request };
  paintPresenceCursor(context, {
    shape: where,
    colours,
    cursor: cursor.value,
    message: place.value.message,
    cell: focused.value ? placed(cell.value) : null,
    over: placed(over.value),
  });
}

/**
 * Says the cell below the pointer, else that of the keyboard, else that of the place.
 * @param {PresenceModel} model
 * @param {HTMLElement} grid
 * @param {ReturnType<typeof focusCell>[]} cells two in turn: a changed one is not read again
 * @param {HTMLElement} line
 */
function sayCell(model, grid, cells, line) {
  const now = timeline.value;
  now?.version.value;
  grid.setAttribute('aria-rowcount', String(now?.messages.count ?? 0));
  grid.setAttribute('aria-colcount', String(now?.requests.count ?? 0));
  const { perRow } = model.scale.value;
  const cell = model.focused.value ? (model.cell.value ?? startCell()) : null;
  const shown = model.over.value ?? cell ?? startCell();
  writeText(line, now === null || shown === null ? '' : spokenCell(now, shown, perRow));
  if (now === null || cell === null) return;
  const active = grid.getAttribute('aria-activedescendant');
  const next = cells.find((one) => one.cell.id !== active);
  if (next === undefined) return;
  next.row.setAttribute('aria-rowindex', String(cell.message + 1));
  next.cell.setAttribute('aria-colindex', String(cell.request + 1));
  next.cell.setAttribute('aria-label', spokenCell(now, cell, perRow));
  grid.setAttribute('aria-activedescendant', next.cell.id);
}

/** Where the keyboard begins: at the place's message and request. @returns {PresenceCell | null} */
function startCell() {
  const now = timeline.value;
  const request = cursor.value;
  if (now === null || request < 0 || now.messages.count === 0) return null;
  const message = place.value.message ?? now.requests.last[request] ?? 0;
  return { message: Math.min(now.messages.count - 1, Math.max(0, message)), request };
}

/** @param {KeyboardEvent} event @param {PresenceModel} model @param {HTMLElement} grid */
function cellKey(event, model, grid) {
  const now = timeline.peek();
  const from = model.cell.peek() ?? startCell();
  if (now === null || from === null || event.altKey || event.metaKey || event.shiftKey) return;
  if (event.key === 'Enter') openCell(from);
  else if (event.key === '+' || event.key === '=') zoom(model, grid, 1);
  else if (event.key === '-') zoom(model, grid, -1);
  else {
    const [first, last] = shownWindow.peek();
    const { perRow, pixels } = model.scale.peek();
    const page = Math.max(1, Math.floor((model.size.peek().height - 2 * PRESENCE_EDGE) / pixels) - 1);
    const counts = { messages: now.messages.count, requests: now.requests.count };
    const next = cellByKey(from, event, { perRow, page, first, last, ...counts });
    if (next === null) return;
    batch(() => {
      showRequests(windowWith([first, last], next.request, counts.requests));
      model.cell.value = next;
    });
    showMessage(model, grid, next.message);
  }
  event.preventDefault();
}

/** @param {PresenceModel} model @returns {import('./surface.js').PointerUse} */
function mapPointer(model) {
  /** @param {{x: number, y: number} | null} at @returns {PresenceCell | null} */
  function cellUnder(at) {
    const shape = model.shape.peek();
    const found = shape && at && cellAt(shape, at);
    return found ? { message: messagesOfRow(shape, found.row)[0], request: found.request } : null;
  }
  let pressed = { x: 0, y: 0 };
  return {
    press(at) {
      pressed = at;
    },
    release(at) {
      // A finger that moved was scrolling.
      if (Math.hypot(at.x - pressed.x, at.y - pressed.y) > 6) return;
      const cell = cellUnder(at);
      if (cell === null) return;
      model.cell.value = cell;
      openCell(cell);
    },
    hover(at) {
      const [before, next] = [model.over.peek(), cellUnder(at)];
      if (before?.message !== next?.message || before?.request !== next?.request) model.over.value = next;
    },
  };
}

/** @param {PresenceModel} model @param {HTMLElement} grid */
function zoomButtons(model, grid) {
  /** @param {string} text @param {string} label @param {() => void} click */
  const button = (text, label, click) =>
    h('button', { class: 'quiet', type: 'button', 'aria-label': label, title: label, text, on: { click } });
  return h(
    'span',
    { class: 'chart-zoom' },
    button('−', 'More messages', () => zoom(model, grid, -1)),
    button('+', 'Fewer messages, nearer', () => zoom(model, grid, 1)),
    button('All', 'All messages', () => zoom(model, grid, -Infinity)),
  );
}

/**
 * Nearer or further; the message that is looked at, else the middle one, stays in sight.
 * @param {PresenceModel} model
 * @param {HTMLElement} grid
 * @param {number} by
 */
function zoom(model, grid, by) {
  const before = model.scale.peek();
  const body = model.size.peek().height - 2 * PRESENCE_EDGE;
  const middle = ((model.offset.peek() + body / 2) / before.pixels) * before.perRow;
  const looked = model.cell.peek()?.message ?? place.peek().message ?? middle;
  const most = model.scales.peek().length - 1;
  model.chosen.value = Math.min(most, Math.max(0, model.level.peek() + by));
  const { perRow, pixels } = model.scale.peek();
  grid.scrollTop = (looked / perRow) * pixels - body / 2;
  model.offset.value = grid.scrollTop;
}

/** @param {WheelEvent} event @param {PresenceModel} model @param {HTMLElement} grid */
function wheelZoom(event, model, grid) {
  if (!event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  zoom(model, grid, event.deltaY < 0 ? 1 : -1);
}

/**
 * Another window has other messages: its last one comes to the lower edge. Nearer, where they are
 * too many for the map, those of the request at the cursor come to its middle.
 * @param {PresenceModel} model
 * @param {HTMLElement} grid
 */
function showWindow({ size, scale }, grid) {
  const [, last] = shownWindow.value;
  const body = size.value.height - 2 * PRESENCE_EDGE;
  const now = timeline.value;
  if (now === null || last < 0 || body <= 0) return;
  // The tall box gets its height in the same round of effects, and a scroll needs it.
  requestAnimationFrame(() => {
    const { perRow, pixels } = scale.peek();
    const added = now.requests.last;
    const at = cursor.peek();
    const [first] = shownWindow.peek();
    /** @param {number} request */
    const end = (request) => (((added[request] ?? 0) + 1) / perRow) * pixels;
    const isNear = end(last) - end(first) > body && at >= first && at <= last;
    grid.scrollTop = isNear ? end(at) - body / 2 : end(last) - body;
  });
}

/** @param {PresenceModel} model @param {HTMLElement} grid @param {number} message */
function showMessage(model, grid, message) {
  const shape = model.shape.peek();
  if (shape === null || message >= shape.count) return;
  const offset = offsetToShow(shape, message);
  if (offset !== shape.offset) grid.scrollTop = offset;
}

/**
 * What is in the window has its key there; the others would only take room.
 * @returns {{list: HTMLElement, items: import('./legend.js').LegendItem[],
 *   show: (runs: readonly {what: string}[]) => void}}
 */
function presenceLegend() {
  const names = Object.keys(STANDING_STYLES);
  const items = names.map((what) =>
    legendItem(standingWord(what), (context, width, height) => {
      const path = new Path2D();
      const top = what === 'shortened' ? height / 2 : 0;
      path.rect(0, top, width, height - top);
      const colours = palette.peek();
      paintStanding(context, path, what, { ...colours, text: colours.axis }, height);
    }),
  );
  const list = h(
    'ul',
    { class: 'chart-legend quiet', 'aria-label': 'What became of a message' },
    items.map(({ item }) => item),
  );
  return {
    list,
    items,
    show(runs) {
      const shown = new Set(['whole', ...runs.map(({ what }) => what)]);
      names.forEach((what, at) => {
        const item = items[at]?.item;
        if (item) item.hidden = !shown.has(what);
      });
    },
  };
}

/**
 * Makes the rectangles of the window when it or the session has changed. One that is under way comes
 * to its end first: in a session that grows without pause, it would else never.
 * @param {PresenceModel} model
 */
function runsMaker({ runs }) {
  /** @type {import('../timeline/timeline.js').Timeline | null} */
  let of = null;
  let stop = () => {};
  let isUnderWay = false;
  let isStale = false;
  function make() {
    const now = timeline.peek();
    isStale = false;
    if (now === null) return;
    isUnderWay = true;
    stop = inSlices(presenceRuns(now, shownWindow.peek()), (made) => {
      isUnderWay = false;
      runs.value = made;
      if (isStale) make();
    });
  }
  return {
    follow() {
      const now = timeline.value;
      now?.version.value;
      shownWindow.value;
      if (now !== of) {
        stop();
        isUnderWay = false;
        runs.value = [];
        of = now;
      }
      if (isUnderWay) isStale = true;
      else make();
    },
    end: () => stop(),
  };
}
