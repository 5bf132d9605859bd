/**
 * The overview: all requests of the session, each pixel column from its least to its greatest, and
 * the brush that chooses the window of the river.
 */

import { define, h } from '../core/element.js';
import { countText, shortTokens } from '../parts/numbers.js';
import { computed } from '../core/signals.js';
import { cursor, hits, marks, showRequests, shownWindow, timeline, windowed } from '../core/state.js';
import { brushPartAt, moveEdge, moveWindow, windowBetween, windowByKey } from '../core/request-window.js';
import { writeText } from './legend.js';
import { overviewShape, paintOverview, paintOverviewCursor } from './overview-paint.js';
import { palette } from './palette.js';
import { usePointer, oncePerFrame, freshCanvas, makeSurface } from './surface.js';
import { columnAt, columnLeft } from './scales.js';

/** @typedef {import('../core/request-window.js').BrushPart} BrushPart */
/** @typedef {import('../core/request-window.js').RequestWindow} RequestWindow */
/** @typedef {import('./overview-paint.js').OverviewShape} OverviewShape */
/** @typedef {Exclude<BrushPart, 'new'>} HeldPart */

/** How near to an edge of the window a pointer is on it. */
const REACH = 7;

/** @type {readonly (readonly [HeldPart, string])[]} */
const PARTS = [
  ['move', 'Window of the river'],
  ['first', 'First request of the window'],
  ['last', 'Last request of the window'],
];

define('ctx-overview', (host) => {
  const surface = makeSurface('overview-surface');
  const line = h('p', { class: 'chart-line' });
  const handles = PARTS.map(([part, label]) => ({ part, element: brushHandle(part, label) }));
  surface.box.append(...handles.map(({ element }) => element));
  host.replaceChildren(h('div', { class: 'chart-head' }, line), surface.box);
  const shape = computed(() => {
    const now = timeline.value;
    now?.version.value;
    return now === null ? null : overviewShape(surface.size.value, now.requests.count);
  });
  const paint = oncePerFrame(() => {
    freshCanvas(surface.chart, surface.size.peek());
    const [now, where] = [timeline.peek(), shape.peek()];
    if (now && where) paintOverview(surface.chart, now, where, palette.peek(), hits.peek());
  });
  host.effect(() => {
    for (const one of [shape, palette, hits]) one.value;
    paint.ask();
  });
  host.effect(() => {
    const [where, colours] = [shape.value, palette.value];
    const moving = { window: shownWindow.value, cursor: cursor.value, marks: marks.value };
    freshCanvas(surface.over, surface.size.value);
    if (where) paintOverviewCursor(surface.over, where, colours, moving);
  });
  host.effect(() => {
    const where = shape.value;
    for (const { part, element } of handles) placeHandle(part, element, where);
    writeText(line, overviewWords());
  });
  const endPointer = dragBrush(surface.box, shape);
  return () => {
    endPointer();
    paint.end();
    surface.end();
  };
});

/** @param {HeldPart} part @param {string} label */
function brushHandle(part, label) {
  return h('div', {
    class: `brush-${part}`,
    role: 'slider',
    tabindex: '0',
    'aria-label': label,
    on: {
      /** @param {KeyboardEvent} event */
      keydown(event) {
        if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
        const next = windowByKey(windowed.peek(), part, event.key, timeline.peek()?.requests.count ?? 0);
        if (next === null) return;
        event.preventDefault();
        showRequests(next);
      },
    },
  });
}

/** @param {HeldPart} part @param {HTMLElement} element @param {OverviewShape | null} shape */
function placeHandle(part, element, shape) {
  const now = timeline.value;
  const [first, last] = shownWindow.value;
  element.hidden = now === null || shape === null || last < first;
  if (now === null || shape === null || last < first) return;
  const left = columnLeft(shape.columns, first);
  const right = columnLeft(shape.columns, last + 1);
  element.style.setProperty('--left', `${part === 'last' ? right : left}px`);
  element.style.setProperty('--width', `${Math.max(2, right - left)}px`);
  const value = part === 'last' ? last : first;
  const names = { first: now.name(first), last: now.name(last) };
  element.setAttribute('aria-valuemin', '1');
  element.setAttribute('aria-valuemax', String(now.requests.count));
  element.setAttribute('aria-valuenow', String(value + 1));
  element.setAttribute(
    'aria-valuetext',
    part === 'move' ? `${names.first} to ${names.last}, ${last - first + 1} requests` : names[part],
  );
}

function overviewWords() {
  const now = timeline.value;
  const [first, last] = shownWindow.value;
  if (now === null || last < first) return 'No request yet';
  const { total, count } = now.requests;
  let [least, most] = [Infinity, 0];
  for (let request = 0; request < count; request += 1) {
    least = Math.min(least, total[request] ?? 0);
    most = Math.max(most, total[request] ?? 0);
  }
  const compactions = now.compactions.filter(({ number }) => number > 0).length;
  return [
    count === 1
      ? `One request: ${shortTokens(most)} tokens`
      : `All ${countText(count)} requests: ${shortTokens(least)} to ${shortTokens(most)} tokens`,
    `${countText(compactions)} ${compactions === 1 ? 'compaction' : 'compactions'}`,
    `window ${now.name(first)} to ${now.name(last)}`,
  ].join(' · ');
}

/** @param {HTMLElement} box @param {import('../core/signals.js').Computed<OverviewShape | null>} shape */
function dragBrush(box, shape) {
  /** @type {{part: BrushPart, at: number, from: RequestWindow} | null} */
  let held = null;
  /** @param {number} x */
  function requestAtX(x) {
    const where = shape.peek();
    return where === null ? -1 : columnAt(where.columns, x);
  }
  /** @param {number} x */
  function partAt(x) {
    const where = shape.peek();
    if (where === null) return 'new';
    const [first, last] = windowed.peek();
    const [left, right] = [columnLeft(where.columns, first), columnLeft(where.columns, last + 1)];
    return brushPartAt({ left, right }, x, REACH);
  }
  return usePointer(box, {
    press({ x }) {
      const at = requestAtX(x);
      if (at < 0) return false;
      const part = partAt(x);
      held = { part, at, from: windowed.peek() };
      return true;
    },
    drag({ x }) {
      const count = timeline.peek()?.requests.count ?? 0;
      const to = requestAtX(x);
      if (held === null || to < 0) return;
      if (held.part === 'move') showRequests(moveWindow(held.from, to - held.at, count));
      else if (held.part !== 'new') showRequests(moveEdge(held.from, held.part, to, count));
      else if (to !== held.at) showRequests(windowBetween(held.at, to, count));
    },
    release({ x }) {
      const count = timeline.peek()?.requests.count ?? 0;
      // A click next to the window brings it there.
      if (held?.part === 'new' && requestAtX(x) === held.at) {
        const [first, last] = held.from;
        showRequests(moveWindow(held.from, held.at - Math.round((first + last) / 2), count));
      }
      held = null;
    },
    hover(at) {
      box.dataset.part = at === null ? '' : partAt(at.x);
    },
  });
}
