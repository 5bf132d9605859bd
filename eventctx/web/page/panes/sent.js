// `<ctx-sent>`: what the model was sent at the cursor.

import { define, h } from '../core/element.js';
import { counted } from '../parts/numbers.js';
import { place } from '../core/place.js';
import { RecentValues } from '../core/keyed.js';
import { computed, untracked } from '../core/signals.js';
import { cursor, detail, source, timeline } from '../core/state.js';
import { markSelected, selectMessage } from './transcript.js';
import { newEntries, rowOfMessage, sentRows } from './sent-rows.js';
import { chosenLevels, raw } from './detail-levels.js';
import { heightOfSentRow, keyOfSentRow, openSentRow, sentRowView } from './sent-row.js';

/** @typedef {import('../parts/virtual-list.js').VirtualList} VirtualList */
/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('./sent-rows.js').SentRow} SentRow */

// The engine is asked when the cursor rests; scrubbing asks it nothing.
const REST_BEFORE_ASKING_MS = 200;
const MOST_ANSWERS = 32;

/** @typedef {{row: number, standsFor: boolean}} FoundRow */

/** @type {FoundRow} */
const NOT_FOUND = { row: -1, standsFor: false };

/** Answers to `view` by session and position; they never change. @type {RecentValues<any>} */
const viewAnswers = new RecentValues(MOST_ANSWERS);

define('ctx-sent', (host) => {
  const list = /** @type {VirtualList} */ (h('ctx-virtual-list', {
    class: 'rows', 'aria-label': 'What the model was sent',
  }));
  const about = h('span', { class: 'muted' });
  const note = h('p', { class: 'sent-note', hidden: true, 'aria-live': 'polite' });
  const loss = h('p', { class: 'sent-note sent-loss', hidden: true });
  host.replaceChildren(
    h('header', { class: 'pane-head' }, h('h2', { text: 'Sent to the model' }), about), loss, note, list);

  /** @type {SentRow[]} */
  let rows = [];
  // A row that is clicked must not move under the pointer.
  let isChosenHere = false;
  let found = NOT_FOUND;
  const show = (/** @type {Timeline} */ now, /** @type {number} */ request) => {
    const before = now.previousOf(request);
    const answer = viewAnswers.get(answerKey(now, request)) ?? null;
    rows = request < 0 ? [] : sentRows(now, request, newEntries(now, before, request), answer);
    about.textContent = aboutText(request, rows);
    const lost = now.lossAt(request);
    loss.hidden = lost === null;
    loss.textContent = lost === null ? '' : `Inferred: ${lost.words}`;
    found = foundNow(now);
    const isChosen = place.peek().message !== null;
    list.showRows(listRows(now, request, rows, () => found), isChosen ? found.row : rows.length - 1, isChosen ? 'nearest' : 'end');
    noteSelected();
  };
  const foundNow = (/** @type {Timeline} */ now) => {
    const { message } = place.peek();
    return message === null ? NOT_FOUND : rowOfMessage(now, rows, message);
  };
  const noteSelected = () => {
    const { message } = place.peek();
    note.hidden = message === null || (found.row >= 0 && !found.standsFor);
    if (!note.hidden) note.textContent = noteText(message ?? 0, found.standsFor);
    if (found.row >= 0) list.focused = found.row;
    markSelected(host, message);
    markStandIn(host, found.standsFor ? rows[found.row] : undefined);
  };
  host.effect(() => {
    const now = timeline.value;
    if (now === null) return;
    now.version.value;
    detail.value;
    const request = cursor.value;
    untracked(() => show(now, request));
  });
  host.effect(() => {
    chosenLevels.value;
    raw.value;
    untracked(() => list.update());
  });
  const chosen = computed(() => place.value.message);
  host.effect(() => {
    chosen.value; // not the place: each step of the cursor changes that
    const now = timeline.peek();
    if (now === null) return;
    untracked(() => {
      found = foundNow(now);
      noteSelected();
      if (isChosenHere) isChosenHere = false;
      else if (found.row >= 0) list.reveal(found.row, 'nearest');
    });
  });
  host.effect(() => {
    const now = timeline.value;
    const request = cursor.value;
    if (now === null || request < 0) return undefined;
    return untracked(() => askWhenResting(now, request, () => show(now, request)));
  });
  list.addEventListener('rowfocus', (/** @type {any} */ event) => {
    const number = numberOfRow(timeline.peek(), rows[event.detail.index]);
    if (number === null) return;
    isChosenHere = place.peek().message !== number;
    selectMessage(number);
  });
  list.addEventListener('rowopen', (/** @type {any} */ event) => {
    const now = timeline.peek();
    if (now !== null) openSentRow(now, rows[event.detail.index]);
  });
});

/**
 * Asks the engine for what the columns cannot say: system prompt, tools, the request as it was sent.
 * @param {Timeline} now
 * @param {number} request
 * @param {() => void} then
 * @returns {(() => void)|undefined}
 */
function askWhenResting(now, request, then) {
  const key = answerKey(now, request);
  const { known, additions, tools, system } = now.requests;
  const useful = known[request] === 0 || additions[request] > 0 || tools[request] > 0 || system[request] > 0;
  if (!source.can.answers || !useful || viewAnswers.has(key)) return undefined;
  const timer = setTimeout(async () => {
    try {
      const answer = await source.answer(now.session, 'view', { position: now.requests.position[request], parts: 1 });
      viewAnswers.set(key, answer);
      if (timeline.peek() === now && cursor.peek() === request) then();
    } catch {
      // The rows of the columns stay; they say themselves what is not known.
    }
  }, REST_BEFORE_ASKING_MS);
  return () => clearTimeout(timer);
}

/** @param {Timeline} now @param {number} request */
function answerKey(now, request) {
  return `${now.requests.position[request]} ${now.session}`;
}

/** @param {number} request @param {SentRow[]} rows */
function aboutText(request, rows) {
  if (request < 0) return 'nothing yet';
  const entries = rows.filter((row) => row.type === 'entry' || row.type === 'sent').length;
  const fresh = rows.filter((row) => row.type === 'entry' && row.isNew).length;
  const asSent = rows.some((row) => row.type === 'sent') ? ', as it was sent' : '';
  const since = request > 0 && fresh > 0 && asSent === '' ? `, ${fresh} new since the request before` : '';
  return `${counted(entries, 'message')}${since}${asSent}`;
}

/** @param {number} number @param {boolean} standsFor */
function noteText(number, standsFor) {
  if (standsFor) return `#${number} is not in this request; the row marked below stands for it.`;
  return `#${number} is not in this request.`;
}

/**
 * @param {Timeline} now
 * @param {number} request
 * @param {SentRow[]} rows
 * @param {() => FoundRow} found the row of the selected message
 */
function listRows(now, request, rows, found) {
  return {
    count: rows.length,
    key: (/** @type {number} */ at) => keyOfSentRow(now, request, rows[at]),
    height: (/** @type {number} */ at) => heightOfSentRow(now, rows[at]),
    render: (/** @type {number} */ at) => {
      const view = sentRowView(now, rows[at]);
      view.classList.toggle('is-stand-in', found().standsFor && found().row === at);
      return view;
    },
  };
}

/** @param {HTMLElement} host @param {SentRow|undefined} row */
function markStandIn(host, row) {
  for (const one of host.querySelectorAll('.is-stand-in')) one.classList.remove('is-stand-in');
  if (row?.type !== 'entry') return;
  host.querySelector(`[data-entry="${row.id}"]`)?.classList.add('is-stand-in');
}

/**
 * The message that a row shows; null for one that shows none.
 * @param {Timeline|null} now
 * @param {SentRow|undefined} row
 */
function numberOfRow(now, row) {
  if (now === null || row === undefined) return null;
  if (row.type === 'sent') return row.numbers[0] ?? null;
  return row.type === 'entry' ? now.entry(row.id).number : null;
}
