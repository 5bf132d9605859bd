// The keys of the session's screen: everything that a pointer can do there.

import { onKey } from '../core/keys.js';
import { go, place } from '../core/place.js';
import { cursor, follow, followEnd, marks, notify, setCursor, timeline } from '../core/state.js';
import { HUMAN_KIND } from '../timeline/groups.js';
import { listenToDetailKeys } from './detail-levels.js';
import { h } from '../core/element.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

const PLAY_STEP_MS = 300;

/** @returns {() => void} takes the keys away */
export function sessionKeys() {
  const player = new CursorPlayer();
  /** @type {(key: string, description: string, handler: () => void) => () => void} */
  const here = (key, description, handler) => onKey(key, description, handler, { screen: 'session' });
  const ends = [
    here('ArrowLeft', 'The request before', () => setCursor(cursor.peek() - 1)),
    here('ArrowRight', 'The next request', () => setCursor(cursor.peek() + 1)),
    here('Shift+ArrowLeft', 'The compaction before', () => toCompaction(-1)),
    here('Shift+ArrowRight', 'The next compaction', () => toCompaction(1)),
    here('[', 'The turn before', () => toTurn(-1)),
    here(']', 'The next turn', () => toTurn(1)),
    here('Home', 'The first request', () => setCursor(0)),
    here('End', 'The last request', () => setCursor(Infinity)),
    here('j', 'The next message', () => toMessage(1)),
    here('k', 'The message before', () => toMessage(-1)),
    here('n', 'The next message of a person', () => toPersonsMessage(1)),
    here('N', 'The message of a person before', () => toPersonsMessage(-1)),
    here(' ', 'Play: step through the requests', () => player.toggle()),
    here('a', 'Mark the request as A', () => mark('a')),
    here('b', 'Mark the request as B', () => mark('b')),
    here('w', 'Why the message is in the request, or is not', () => openTab('why')),
    here('d', 'The difference from the request before', () => openTab('diff')),
    here('f', 'Follow the end', () => (follow.peek() ? setCursor(cursor.peek()) : followEnd())),
    here('g', 'Go to a message or a position', askWhereTo),
    listenToDetailKeys(),
    () => player.stop(),
  ];
  return () => ends.forEach((end) => end());
}

/** @param {string} tab */
function openTab(tab) {
  go({ tab });
  // On the panel: what it says is read aloud, and the arrows still step through the requests.
  document.getElementById('drawer-panel')?.focus({ preventScroll: true });
}

/** Moves the cursor to the first request after another compaction. @param {1|-1} by */
function toCompaction(by) {
  const now = timeline.peek();
  if (now === null) return;
  const request = cursor.peek();
  const firsts = now.compactions.filter((one) => one.number > 0).map((one) => now.requestAt(one.position) + 1);
  const found = by > 0 ? firsts.find((one) => one > request) : firsts.findLast((one) => one < request);
  if (found === undefined) notify(by > 0 ? 'No compaction comes after this request.' : 'No compaction comes before this request.');
  else setCursor(found);
}

/** @param {1|-1} by */
function toTurn(by) {
  const now = timeline.peek();
  if (now === null) return;
  const { turn, count } = now.requests;
  let at = cursor.peek();
  const here = turn[at];
  // The first request of the turn, or of the one before if the cursor is there already.
  if (by < 0) {
    if (at > 0 && turn[at - 1] === here) while (at > 0 && turn[at - 1] === here) at--;
    else {
      at--;
      while (at > 0 && turn[at - 1] === turn[at]) at--;
    }
  } else while (at < count && turn[at] === here) at++;
  setCursor(at);
}

/** @param {1|-1} by */
function toMessage(by) {
  const now = timeline.peek();
  if (now === null || now.messages.count === 0) return;
  const at = place.peek().message;
  // Without a selection the last message at the cursor is in sight: begin there.
  const to = at === null ? lastAtCursor(now) : at + by;
  go({ message: Math.max(0, Math.min(to, now.messages.count - 1)) }, { replace: true });
}

/** @param {1|-1} by */
function toPersonsMessage(by) {
  const now = timeline.peek();
  if (now === null) return;
  const { kind, count } = now.messages;
  let at = place.peek().message ?? (by > 0 ? -1 : lastAtCursor(now) + 1);
  do at += by; while (at >= 0 && at < count && kind[at] !== HUMAN_KIND);
  if (at < 0 || at >= count) notify('There is no other message of a person.');
  else go({ message: at }, { replace: true });
}

/** @param {Timeline} now */
function lastAtCursor(now) {
  const request = cursor.peek();
  return request < 0 ? now.messages.count - 1 : now.requests.last[request];
}

/** @param {'a'|'b'} which */
function mark(which) {
  const now = timeline.peek();
  const request = cursor.peek();
  if (now === null || request < 0) return;
  marks.value = { ...marks.peek(), [which]: request };
  notify(`Request ${now.name(request)} is ${which.toUpperCase()}; c compares A and B.`);
}

/** Steps through the requests until the end, or until it is stopped. */
class CursorPlayer {
  constructor() {
    this.timer = 0;
  }

  toggle() {
    if (this.timer !== 0) this.stop();
    else this.timer = window.setInterval(() => this.step(), PLAY_STEP_MS);
  }

  step() {
    const last = (timeline.peek()?.requests.count ?? 0) - 1;
    if (cursor.peek() >= last) this.stop();
    else setCursor(cursor.peek() + 1);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = 0;
  }
}

const ROW_CONTROLS = 'a[href], button, summary';

/**
 * Rows of the lists hold links and buttons; a list of thousands must not have thousands of stops for
 * the Tab key. Only those of the row that has the focus are stops.
 * @param {HTMLElement} host
 * @returns {() => void} ends it
 */
export function limitTabStops(host) {
  // Texts come when they come, so the stops are set when the key is pressed, before it acts.
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Tab') setRowStops(host);
  };
  document.addEventListener('keydown', pressed, { capture: true });
  return () => document.removeEventListener('keydown', pressed, { capture: true });
}

/** @param {HTMLElement} host */
function setRowStops(host) {
  for (const list of host.querySelectorAll('ctx-virtual-list')) {
    const { focused } = /** @type {import('../parts/virtual-list.js').VirtualList} */ (list);
    for (const row of list.querySelectorAll('.list-row')) {
      const isStop = row.getAttribute('aria-posinset') === String(focused + 1);
      for (const control of row.querySelectorAll(ROW_CONTROLS)) {
        if (isStop) control.removeAttribute('tabindex');
        else control.setAttribute('tabindex', '-1');
      }
    }
  }
}

/**
 * Where an input leads to; null if it is not understood or not there.
 * @param {Timeline} now
 * @param {string} input
 * @returns {{message: number}|{at: number}|null}
 */
export function goalOf(now, input) {
  const text = input.trim();
  const message = /^#?(\d{1,9})$/.exec(text);
  if (message) {
    const number = Number(message[1]);
    return number < now.messages.count ? { message: number } : null;
  }
  const position = /^@(\d{1,15})$/.exec(text);
  if (position) return Number(position[1]) <= now.head ? { at: Number(position[1]) } : null;
  const request = now.requestNamed(text);
  return request < 0 ? null : { at: now.requests.position[request] };
}

/** Opens a dialog: to a message (#40), a position (@336) or a request (2.3). It goes away by itself. */
function askWhereTo() {
  const now = timeline.peek();
  if (now === null) return;
  const input = h('input', {
    type: 'text', id: 'goto-input', autocomplete: 'off', spellcheck: 'false', 'aria-describedby': 'goto-problem',
  });
  const problem = h('p', { id: 'goto-problem', class: 'muted', 'aria-live': 'polite' });
  const dialog = h('dialog', { class: 'goto', 'aria-label': 'Go to' },
    h('form', {
      on: {
        submit: (/** @type {Event} */ event) => {
          event.preventDefault();
          const goal = goalOf(now, input.value);
          if (goal === null) problem.textContent = 'There is no such message, position or request.';
          else {
            dialog.close();
            go(goal);
          }
        },
      },
    },
    h('label', { for: 'goto-input', text: 'Go to #message, @position or request (2.3)' }), input, problem,
    h('button', { type: 'submit', text: 'Go' })));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
}
