// `<ctx-transcript>`: all messages of the session, in or out of view at the cursor.

import { define, h } from '../core/element.js';
import { standingAt } from '../parts/standing.js';
import { countText } from '../parts/numbers.js';
import { go, place } from '../core/place.js';
import { untracked } from '../core/signals.js';
import { cursor, detail, timeline } from '../core/state.js';
import { showBody } from './bodies.js';
import {
  chosenLevels, detailSwitches, estimatedHeight, foldButton, levelOfRow, raw, toggleRow,
} from './detail-levels.js';
import { messageHead, screenGroup } from './message-head.js';
import { messageView } from './message.js';

/** @typedef {import('../parts/virtual-list.js').VirtualList} VirtualList */
/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

define('ctx-transcript', (host) => {
  const list = /** @type {VirtualList} */ (h('ctx-virtual-list', {
    class: 'rows', 'aria-label': 'All messages of the session',
  }));
  const count = h('span', { class: 'muted' });
  host.replaceChildren(
    h('header', { class: 'pane-head' },
      h('h2', { text: 'Transcript' }), count, detailSwitches(host)),
    list,
  );
  const results = new ResultsOfCalls();
  // A row that is clicked must not move under the pointer.
  let isChosenHere = false;
  host.effect(() => {
    const now = timeline.value;
    detail.value;
    if (now !== null) untracked(() => (list.rows = transcriptRows(now, results)));
  });
  host.effect(() => {
    const now = timeline.value;
    if (now === null) return;
    now.version.value;
    untracked(() => {
      count.textContent = countText(now.messages.count);
      results.read(now);
      list.update();
    });
  });
  host.effect(() => {
    chosenLevels.value;
    raw.value;
    untracked(() => list.update());
  });
  host.effect(() => {
    const now = timeline.value;
    if (now === null) return;
    now.version.value;
    cursor.value;
    // The rows stay: only what the cursor changes is written, and nothing is measured for it.
    untracked(() => refreshHeads(list, now, results));
  });
  host.effect(() => {
    const now = timeline.value;
    const { message } = place.value;
    const request = cursor.value;
    if (now === null) return;
    untracked(() => {
      // Who comes by Tab comes to the selected message.
      if (message !== null) list.focused = message;
      if (isChosenHere) isChosenHere = false;
      else if (message !== null) list.reveal(message, 'nearest');
      else if (request >= 0) list.reveal(now.requests.last[request], 'nearest');
      markSelected(host, message);
    });
  });
  list.addEventListener('rowfocus', (/** @type {any} */ event) => {
    isChosenHere = place.peek().message !== event.detail.index;
    selectMessage(event.detail.index);
  });
  list.addEventListener('rowopen', (/** @type {any} */ event) => {
    const now = timeline.peek();
    if (now !== null) toggleRow(transcriptRowName(event.detail.index), groupOfMessage(now, event.detail.index));
  });
});

/**
 * A row's text depends on the message and the level alone, so scrubbing draws none again; what the
 * cursor changes is in its head.
 * @param {Timeline} now
 * @param {ResultsOfCalls} results
 */
function transcriptRows(now, results) {
  const levelOf = (/** @type {number} */ number) => levelOfRow(transcriptRowName(number), groupOfMessage(now, number));
  return {
    get count() {
      return now.messages.count;
    },
    key: (/** @type {number} */ number) => number * 6 + levelOf(number) * 2 + Number(raw.peek()),
    height: (/** @type {number} */ number) =>
      estimatedHeight(levelOf(number), now.messages.characters[number]),
    render: (/** @type {number} */ number) => transcriptRow(now, number, levelOf(number), results),
  };
}

/** @param {Timeline} now @param {number} number @param {0|1|2} level @param {ResultsOfCalls} results */
function transcriptRow(now, number, level, results) {
  const { position, index, characters } = now.messages;
  const row = h('article', {
    'data-number': number,
    'aria-current': place.peek().message === number ? 'true' : null,
    'aria-label': `Message ${number}`,
    on: {
      click: (/** @type {MouseEvent} */ event) => {
        if (!selectByClick(event, number)) return;
        if (unfoldsAt(event, level)) toggleRow(transcriptRowName(number), groupOfMessage(now, number));
      },
    },
  });
  putHead(row, now, number, results);
  if (level === 0) return row;
  row.append(rowText(now.session, { position: position[number], index: index[number] }, level, characters[number]));
  return row;
}

/** @param {number} number of a message @returns {string} the name of its row */
function transcriptRowName(number) {
  return `t${number}`;
}

/** @param {Timeline} now @param {number} number */
function groupOfMessage(now, number) {
  return screenGroup(now.messages.kind[number]);
}

/**
 * Heads of the rows in sight that read otherwise at the cursor now.
 * @param {HTMLElement} list
 * @param {Timeline} now
 * @param {ResultsOfCalls} results
 */
function refreshHeads(list, now, results) {
  for (const row of list.querySelectorAll('[data-number]')) {
    putHead(/** @type {HTMLElement} */ (row), now, Number(row.getAttribute('data-number')), results);
  }
}

/** @param {HTMLElement} row @param {Timeline} now @param {number} number @param {ResultsOfCalls} results */
function putHead(row, now, number, results) {
  const standing = standingAt(now, number, cursor.peek());
  const answers = results.of(number);
  const state = `${standing.what} ${standing.change} ${answers.length} ${now.links.length}`;
  if (row.dataset.state === state) return;
  row.dataset.state = state;
  row.className = `row g-${screenGroup(now.messages.kind[number])} is-${standing.what}`;
  const fold = foldButton(transcriptRowName(number), groupOfMessage(now, number), `Message ${number}`);
  const head = messageHead(now, number, standing, answers, fold);
  if (row.firstElementChild === null) row.append(head);
  else row.firstElementChild.replaceWith(head);
}

/**
 * The text of a row; until it is there, a placeholder about as high as it will be.
 * @param {string} session
 * @param {import('./bodies.js').BodyAddress} place
 * @param {0|1|2} level
 * @param {number} characters
 */
export function rowText(session, place, level, characters) {
  const height = estimatedHeight(level, characters) - estimatedHeight(0, 0);
  const text = h('div', { class: 'row-text' },
    h('div', { class: 'waiting', vars: { '--height': `${height}px` }, 'aria-hidden': 'true' }));
  showBody(session, place, text, (message, trees) => {
    text.replaceChildren(messageView(message, { detail: level, trees, raw: raw.peek() }));
  }, level === 2 && !raw.peek());
  return text;
}

/** @param {number} number */
export function selectMessage(number) {
  if (place.peek().message !== number) go({ message: number }, { replace: true });
}

/**
 * @param {MouseEvent} event
 * @param {number|null} number
 * @returns {boolean} whether the row was meant, and nothing in it
 */
export function selectByClick(event, number) {
  // A text that is marked with the mouse is to be copied.
  if (!getSelection()?.isCollapsed) return false;
  if (number !== null) selectMessage(number);
  return event.target instanceof Element && event.target.closest('a, button, summary') === null;
}

/**
 * A row that is folded unfolds wherever it is clicked; one that is read folds at its head alone.
 * @param {MouseEvent} event
 * @param {0|1|2} level
 */
export function unfoldsAt(event, level) {
  return level < 2 || (event.target instanceof Element && event.target.closest('.row-head') !== null);
}

/** @param {HTMLElement} host @param {number|null} number */
export function markSelected(host, number) {
  for (const one of host.querySelectorAll('[aria-current]')) one.removeAttribute('aria-current');
  if (number === null) return;
  for (const one of host.querySelectorAll(`[data-number="${number}"]`)) one.setAttribute('aria-current', 'true');
}

/** The results of each message's calls: the column of callers, turned around. */
class ResultsOfCalls {
  constructor() {
    /** @type {Map<number, number[]>} */
    this.found = new Map();
    this.count = 0;
    /** @type {Timeline|null} */
    this.timeline = null;
  }

  /** @param {Timeline} timeline */
  read(timeline) {
    if (timeline !== this.timeline) {
      this.found.clear();
      this.count = 0;
      this.timeline = timeline;
    }
    const { caller, count } = timeline.messages;
    for (; this.count < count; this.count++) {
      const call = caller[this.count];
      if (call < 0) continue;
      const known = this.found.get(call);
      if (known === undefined) this.found.set(call, [this.count]);
      else known.push(this.count);
    }
  }

  /** @param {number} number @returns {readonly number[]} */
  of(number) {
    return this.found.get(number) ?? [];
  }
}
