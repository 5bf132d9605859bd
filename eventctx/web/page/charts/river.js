/**
 * The river: the tokens of every request of the window, stacked by who is behind them.
 *
 * It is a slider: its value is the cursor. The numbers are made in slices after the first paint; a
 * step of the cursor draws the upper canvas and writes a few words.
 */

import { define, h } from '../core/element.js';
import { computed, signal } from '../core/signals.js';
import { cursor, marks, messageOf, notify, setCursor, shownWindow, timeline, hits } from '../core/state.js';
import { costText, shortTokens } from '../parts/numbers.js';
import { KNOWN_WORDS } from '../parts/standing.js';
import { csvButton } from '../parts/saving.js';
import { toggleButton } from '../parts/switches.js';
import { cliffsOf, riverShape, riverTop } from './river-shape.js';
import { legendItem, paintLegend, writeText } from './legend.js';
import { palette } from './palette.js';
import { fillPatterned } from './patterns.js';
import { usePointer, inSlices, oncePerFrame, freshCanvas, makeSurface } from './surface.js';
import { BAND_NAMES, requestWords, spokenRequest } from './request-words.js';
import { paintRiverCursor } from './river-cursor.js';
import { bandStyle, paintCliffMark, paintKnownRun, paintLossMark, paintRiver } from './river-paint.js';
import { COST_BANDS, hasPrices, MICRO, readCosts, RiverRows } from './river-rows.js';
import { columnAt, timePasses } from './scales.js';

/** @typedef {import('./river-shape.js').RiverShape} RiverShape */

/** Whether requests stand by time; else each is as wide as the others. */
const byTime = signal(false);

/** Whether the river shows what requests cost; else their tokens. */
const inMoney = signal(false);

/** What the session's requests cost, once it was asked for. */
const costs = signal(/** @type {import('./river-rows.js').CostRows | null} */ (null));

define('ctx-river', (host) => {
  const surface = makeSurface('river-surface');
  surface.box.setAttribute('role', 'slider');
  surface.box.setAttribute('tabindex', '0');
  surface.box.setAttribute('aria-label', 'Cursor: a request of the river');
  const line = h('p', { class: 'chart-line' });
  const { bands, priced, keys, list } = riverLegend(host);
  const buttons = [timeButton(host), moneyButton(host), csvButton('requests', requestsTable)];
  host.replaceChildren(h('div', { class: 'chart-head river-head' }, line, h('span', { class: 'river-buttons' }, buttons), list), surface.box);

  const hovered = signal(-1);
  /** The rows of this timeline. */
  const rows = computed(() => (timeline.value === null ? null : new RiverRows(timeline.value)));
  const ready = signal(0);
  const shape = computed(() => shapeNow(surface.size.value));

  host.effect(() => fillRows(rows.value, ready));
  const paint = oncePerFrame(() => paintLower(surface, costsNow() ?? rows.peek(), shape.peek()));
  host.effect(() => {
    for (const one of [shape, palette, hits, ready]) one.value;
    paint.ask();
  });
  host.effect(() => paintUpper(surface, shape.value, hovered.value));
  host.effect(() => paintLegend([...bands, ...priced, ...keys]));
  host.effect(() => {
    ready.value;
    describe(surface.box, line, bands, rows.value, hovered.value);
    describeCosts(line, priced, hovered.value);
  });
  surface.box.addEventListener('keydown', riverKey);
  const endPointer = usePointer(surface.box, {
    press: (at) => moveTo(shape.peek(), at.x),
    drag: (at) => moveTo(shape.peek(), at.x),
    hover: (at) => {
      const now = shape.peek();
      hovered.value = at === null || now === null ? -1 : columnAt(now.columns, at.x);
    },
  });
  return () => {
    endPointer();
    paint.end();
    surface.end();
  };
});

/** The costs of the session that is open, if the river shows them. */
function costsNow() {
  const known = costs.value;
  return inMoney.value && known !== null && known.timeline === timeline.value ? known : null;
}

/**
 * There where a price is known. What requests cost is asked for when it is shown, and again as they grow.
 * @param {import('../core/element.js').Host} host
 */
function moneyButton(host) {
  const button = toggleButton(host, { text: 'in money', title: 'What each request cost at list prices' },
    () => inMoney.value, () => (inMoney.value = !inMoney.peek()));
  host.effect(() => {
    const now = timeline.value;
    now?.version.value;
    button.hidden = now === null || !hasPrices(now);
    if (now === null || button.hidden || !inMoney.value) return;
    const known = costs.peek();
    if (known?.timeline === now && known.bands.length === now.requests.count) return;
    void readCosts(now).then((found) => (costs.value = found), (error) => {
      inMoney.value = false;
      notify(`The costs cannot be read: ${messageOf(error)}`, { isError: true });
    });
  });
  return button;
}

/** The requests of the session as a table. */
function requestsTable() {
  const now = timeline.peek();
  if (now === null) return [];
  const { requests } = now;
  const known = (/** @type {number | undefined} */ value) => (value === undefined || value < 0 ? null : value);
  return Array.from({ length: requests.count }, (_, request) => ({
    request: now.name(request),
    position: requests.position[request],
    time: requests.time[request] > 0 ? new Date(requests.time[request]).toISOString() : null,
    model: now.models[requests.model[request]] ?? null,
    tokens: requests.total[request],
    estimated: requests.estimated[request] === 1,
    ...Object.fromEntries(BAND_NAMES.map((name, band) => [name, band === 0 ? known(requests.beside[request]) : now.sums(request)[band - 1]])),
    cached: known(requests.cached[request]),
    budget: known(requests.budget[request]),
    cost: costsNow() === null ? null : (costsNow()?.sum(request) ?? 0) / MICRO,
    digest: requests.digest[request],
  }));
}

/**
 * @param {import('../core/element.js').Host} host
 * @returns {Record<'bands' | 'priced' | 'keys', import('./legend.js').LegendItem[]> & {list: HTMLElement}}
 */
function riverLegend(host) {
  const bandItem = (/** @type {string} */ name, /** @type {number} */ band) =>
    legendItem(name, (context, width, height) => {
      const path = new Path2D();
      path.rect(0, 0, width, height);
      fillPatterned(context, path, bandStyle(palette.peek(), band));
    });
  const bands = BAND_NAMES.map(bandItem);
  const priced = COST_BANDS.map(([name], band) => bandItem(name, band));
  const keys = [
    ...KNOWN_WORDS.map((word, code) =>
      legendItem(word, (context, width, height) => {
        paintKnownRun(context, { x: 0, y: height / 2 - 2.5, width, height: 5 }, code, palette.peek());
      }),
    ),
    legendItem('counted by the provider', (context, width, height) => {
      context.fillStyle = palette.peek().reported;
      context.arc(width / 2, height / 2, 2.6, 0, 7);
      context.fill();
    }),
    legendItem('budget', (context, width, height) => {
      context.fillStyle = palette.peek().budget;
      context.fillRect(0, height / 2 - 0.75, 6, 1.5);
      context.fillRect(width - 6, height / 2 - 0.75, 6, 1.5);
    }),
    legendItem('compaction', (context, width, height) => {
      paintCliffMark(context, width / 2, height - 2, { request: 0, numbers: [1], tried: 0 }, palette.peek());
    }),
    legendItem('loss, inferred', (context, width, height) => {
      paintLossMark(context, width / 2, height, palette.peek());
    }),
  ];
  const byGroup = h('ul', { class: 'chart-legend', 'aria-label': 'Tokens by group' }, bands.map(({ item }) => item));
  const byPrice = h('ul', { class: 'chart-legend', 'aria-label': 'Cost by price' }, priced.map(({ item }) => item));
  host.effect(() => {
    byPrice.hidden = costsNow() === null;
    byGroup.hidden = !byPrice.hidden;
  });
  const list = h(
    'div',
    { class: 'chart-legends' },
    byGroup, byPrice,
    h('ul', { class: 'chart-legend quiet', 'aria-label': 'Signs' }, keys.map(({ item }) => item)),
  );
  return { bands, priced, keys, list };
}

/** @param {import('./surface.js').Size} size @returns {RiverShape | null} */
function shapeNow(size) {
  const now = timeline.value;
  now?.version.value; // a report that came late may have changed the highest request
  if (now === null || now.requests.count === 0 || size.width < 80) return null;
  const window = shownWindow.value;
  const hasCache = now.requests.cached.some((tokens) => tokens >= 0);
  return riverShape(size, window, costsNow()?.top(window) ?? riverTop(now.requests, window), hasCache, byTime.value ? now.requests.time : null);
}

/**
 * Pauses show only by time; by number a busy minute is not squeezed. Hidden where no time is known.
 * @param {import('../core/element.js').Host} host
 */
function timeButton(host) {
  const button = toggleButton(host, { class: 'river-time', text: 'by time', title: 'A request as wide as it took to the next one' },
    () => byTime.value, () => (byTime.value = !byTime.peek()));
  host.effect(() => {
    const now = timeline.value;
    now?.version.value;
    button.hidden = now === null || !timePasses(now.requests.time, shownWindow.value);
  });
  return button;
}

/**
 * Makes the numbers of the window, a slice at a time.
 * @param {RiverRows | null} rows
 * @param {import('../core/signals.js').Signal<number>} ready ticks when all are there
 */
function fillRows(rows, ready) {
  if (rows === null) return undefined;
  rows.timeline.version.value;
  const [first, last] = shownWindow.value;
  if (rows.has(first, last)) return undefined;
  return inSlices(rows.fill(first, last), () => {
    ready.value = ready.peek() + 1;
  });
}

/**
 * @param {import('./surface.js').Surface} surface
 * @param {RiverRows | import('./river-rows.js').CostRows | null} rows
 * @param {RiverShape | null} shape
 */
function paintLower(surface, rows, shape) {
  if (rows === null || shape === null) {
    freshCanvas(surface.chart, surface.size.peek());
    return;
  }
  const { first, last } = shape.columns;
  // The picture of before stays until the numbers of the next one are there.
  if (!rows.has(first, last)) return;
  freshCanvas(surface.chart, surface.size.peek());
  const { timeline: now } = rows;
  const cliffs = cliffsOf(now.compactions, (position) => now.requestAt(position));
  paintRiver(surface.chart, { timeline: now, rows, shape, colours: palette.peek(), cliffs, hits: hits.peek() });
}

/** @param {import('./surface.js').Surface} surface @param {RiverShape | null} shape @param {number} over */
function paintUpper(surface, shape, over) {
  freshCanvas(surface.over, surface.size.value);
  if (shape === null) return;
  const picture = { shape, colours: palette.value, cursor: cursor.value, hovered: over, marks: marks.value };
  paintRiverCursor(surface.over, picture);
}

/**
 * Says the hovered request, else the one at the cursor; the slider's value is always the cursor's.
 * @param {HTMLElement} box
 * @param {HTMLElement} line
 * @param {import('./legend.js').LegendItem[]} bands
 * @param {RiverRows | null} rows
 * @param {number} over
 */
function describe(box, line, bands, rows, over) {
  const at = cursor.value;
  if (rows === null || at < 0) {
    writeText(line, 'No request yet');
    // A slider has a value, also where it has no place to be.
    for (const name of ['aria-valuemin', 'aria-valuemax', 'aria-valuenow']) box.setAttribute(name, '0');
    box.setAttribute('aria-valuetext', 'No request yet');
    return;
  }
  const { timeline: now } = rows;
  rows.refresh();
  const shown = over >= 0 && over < now.requests.count ? over : at;
  writeText(line, requestWords(now, shown));
  const tokens = rows.of(shown);
  bands.forEach(({ figure }, band) => writeText(figure, shortTokens(tokens[band] ?? 0)));
  box.setAttribute('aria-valuemin', '1');
  box.setAttribute('aria-valuemax', String(now.requests.count));
  box.setAttribute('aria-valuenow', String(at + 1));
  box.setAttribute('aria-valuetext', spokenRequest(now, at, rows.of(at)));
}

/** @param {HTMLElement} line @param {import('./legend.js').LegendItem[]} priced @param {number} over */
function describeCosts(line, priced, over) {
  const known = costsNow();
  const at = over >= 0 ? over : cursor.value;
  if (known === null || at < 0) return;
  priced.forEach(({ figure }, band) => writeText(figure, costText((known.of(at)[band] ?? 0) / MICRO)));
  writeText(line, `${requestWords(known.timeline, at)} · ${known.sum(at) === 0 ? 'cost not known' : costText(known.sum(at) / MICRO)}${known.answered(at)}`);
}

/** @param {RiverShape | null} shape @param {number} x */
function moveTo(shape, x) {
  if (shape === null) return;
  const request = columnAt(shape.columns, x);
  if (request >= 0 && request !== cursor.peek()) setCursor(request);
}

/** Keys of a slider; those with Shift and all others are the page's. @param {KeyboardEvent} event */
function riverKey(event) {
  if (event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
  const [first, last] = shownWindow.peek();
  const at = cursor.peek();
  const to = {
    ArrowLeft: at - 1,
    ArrowDown: at - 1,
    ArrowRight: at + 1,
    ArrowUp: at + 1,
    PageDown: at - 10,
    PageUp: at + 10,
    Home: first,
    End: last,
  }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  setCursor(Math.max(0, to));
}
