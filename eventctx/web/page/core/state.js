/**
 * What the screens share: the source, the session's timeline, the cursor and what follows from it.
 *
 * The cursor is the place's position, read as a request: the last one at or before it. Without a
 * position the cursor is at the end, and stays there while the session grows.
 */

import { clampWindow, WIDEST_WINDOW, windowGrown, windowWith } from './request-window.js';
import { go, place } from './place.js';
import { batch, computed, effect, signal, untracked } from './signals.js';

/** @typedef {import('../source/source.js').Source} Source */
/** @typedef {import('../source/source.js').SessionRow} SessionRow */
/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/** @typedef {'system' | 'person' | 'model' | 'result' | 'summary'} Group */
/** How much is shown of a message: 0 folded, 1 one line, 2 whole. @typedef {0 | 1 | 2} Detail */
/** @typedef {'off' | 'open' | 'lost' | 'ended'} Connection */

/** @type {readonly Group[]} */
export const GROUPS = ['system', 'person', 'model', 'result', 'summary'];

/** Where everything is read from. @type {Source} */
export let source;

/** @type {string | null} */
let named = null;

/** The store that a command has to name; null where the command finds it by itself. */
export function storeOption() {
  return named;
}

/** @type {import('./signals.js').Signal<SessionRow[] | null>} */
export const sessions = signal(/** @type {SessionRow[] | null} */ (null));

/** How far the first list is, and how many sessions were made before those of the list. */
export const listing = signal({ read: 0, sessions: 0, older: 0 });

const PROGRESS_MS = 300;

/** How often it is looked whether a session that lives still does. */
const LIVES_MS = 30_000;

/** Of the place's session: null until it is there. The same object grows. @type {import('./signals.js').Signal<Timeline | null>} */
export const timeline = signal(/** @type {Timeline | null} */ (null));

/** Why there is no timeline. @type {import('./signals.js').Signal<string | null>} */
export const problem = signal(/** @type {string | null} */ (null));

/** @type {import('./signals.js').Signal<Connection>} */
export const connection = signal(/** @type {Connection} */ ('off'));

/**
 * Whether the cursor stays at the end while the session grows: it does as long as the address names
 * no position. @type {import('./signals.js').Computed<boolean>}
 */
export const follow = computed(() => place.value.at === null);

/** Whether the session grew since the list was read last. */
const grew = signal(false);

/**
 * Whether somebody writes to the session: the list says so, or it grew since.
 * @type {import('./signals.js').Computed<boolean>}
 */
export const lives = computed(() => {
  const now = timeline.value;
  if (now === null || !source.can.live) return false;
  return grew.value || sessions.value?.find((row) => row.session === now.session)?.live === true;
});

/** Requests in the river, first and last. @type {import('./signals.js').Signal<[number, number]>} */
export const windowed = signal(/** @type {[number, number]} */ ([0, -1]));

/** Those of them that there are. @type {import('./signals.js').Computed<import('./request-window.js').RequestWindow>} */
export const shownWindow = computed(() => {
  timeline.value?.version.value;
  return clampWindow(windowed.value, timeline.value?.requests.count ?? 0);
});

/** Requests that were marked for comparing. @type {import('./signals.js').Signal<{a: number | null, b: number | null}>} */
export const marks = signal(/** @type {{a: number | null, b: number | null}} */ ({ a: null, b: null }));

/** @type {import('./signals.js').Signal<Record<Group, Detail>>} */
export const detail = signal(
  /** @type {Record<Group, Detail>} */ ({ system: 0, person: 2, model: 1, result: 1, summary: 1 }),
);

/** @type {import('./signals.js').Signal<{text: string, isError: boolean} | null>} */
export const notice = signal(/** @type {{text: string, isError: boolean} | null} */ (null));

/** The request at the cursor: -1 without any. @type {import('./signals.js').Computed<number>} */
export const cursor = computed(() => {
  const now = timeline.value;
  if (now === null) return -1;
  now.version.value; // a longer timeline may have another last request
  const { at } = place.value;
  return at === null ? now.requests.count - 1 : now.requestAt(at);
});

/**
 * Moves the cursor. The address changes without a step for the back button: there are thousands.
 * @param {number} request
 */
export function setCursor(request) {
  const now = timeline.peek();
  if (now === null || now.requests.count === 0) return;
  const held = Math.max(0, Math.min(request, now.requests.count - 1));
  batch(() => {
    go({ at: now.requests.position[held] ?? null }, { replace: true });
    showInWindow(held);
  });
}

/** Goes to the end, and stays there. */
export function followEnd() {
  batch(() => {
    go({ at: null }, { replace: true });
    showInWindow((timeline.peek()?.requests.count ?? 0) - 1);
  });
}

/**
 * Moves the window so that the request is in it, with room for the next steps: each move draws all.
 * @param {number} request
 */
function showInWindow(request) {
  showRequests(windowWith(windowed.peek(), request, timeline.peek()?.requests.count ?? 0));
}

/** Makes them the requests of the river. @param {import('./request-window.js').RequestWindow} window */
export function showRequests([first, last]) {
  const now = windowed.peek();
  if (first !== now[0] || last !== now[1]) windowed.value = [first, last];
}

/**
 * Says something to everybody, also to those who hear the page.
 * @param {string} text
 * @param {{isError?: boolean}} [options]
 */
export function notify(text, { isError = false } = {}) {
  notice.value = { text, isError };
}

/** Takes what everything is read from, and keeps sessions and timeline with the place. @param {Source} from */
export function startState(from) {
  source = from;
  void from.about().then((about) => (named = about.option), () => {});
  if (place.peek().session === null) void loadSessions();
  effect(() => {
    const { session } = place.value;
    return untracked(() => openSession(session));
  });
}

let isReadingSessions = false;

/** Reads the list of sessions again. */
export async function loadSessions() {
  if (isReadingSessions) return;
  isReadingSessions = true;
  const look = async () => void (listing.value = await source.listed());
  const isFirst = sessions.peek() === null;
  const timer = isFirst ? setInterval(() => void look().catch(() => {}), PROGRESS_MS) : undefined;
  try {
    const shown = timeline.peek();
    const head = shown?.head;
    const rows = await source.sessions();
    batch(() => {
      sessions.value = rows;
      grew.value = timeline.peek() === shown && shown?.head !== head;
    });
    await look();
  } catch (error) {
    // A list that is there stays; the next reading may bring it up to date.
    if (sessions.peek() !== null) return;
    notify(`The sessions cannot be read: ${messageOf(error)}`, { isError: true });
  } finally {
    clearInterval(timer);
    isReadingSessions = false;
  }
}

/** @type {string | null} */
let openedSession = null;
let stopOpened = () => {};

/** @param {string | null} name */
function openSession(name) {
  if (name === openedSession) return;
  openedSession = name;
  stopOpened();
  stopOpened = () => {};
  batch(() => {
    timeline.value = null;
    problem.value = null;
    connection.value = 'off';
    marks.value = { a: null, b: null };
    grew.value = false;
  });
  // The session first: in a large store its first list takes the engine's time for seconds.
  void (name === null ? Promise.resolve() : loadTimeline(name)).then(() => void loadSessions());
}

/** @param {string} name */
async function loadTimeline(name) {
  let loaded;
  try {
    loaded = await source.timeline(name);
  } catch (error) {
    if (openedSession === name) problem.value = messageOf(error);
    return;
  }
  // The person may have gone elsewhere meanwhile.
  if (openedSession !== name) return;
  batch(() => {
    windowed.value = windowAround(loaded, cursorIn(loaded));
    timeline.value = loaded;
  });
  stopOpened = keepUp(loaded);
}

/**
 * Follows a session that grows, and keeps the window at its end while the person follows.
 * @param {Timeline} loaded
 * @returns {() => void}
 */
function keepUp(loaded) {
  let known = loaded.requests.count;
  let { head } = loaded;
  const ends = [
    effect(() => {
      loaded.version.value;
      if (loaded.head > head) grew.value = true;
      head = loaded.head;
      const { count } = loaded.requests;
      showRequests(windowGrown(windowed.peek(), known, count));
      known = count;
      if (follow.value) untracked(() => showInWindow(count - 1));
    }),
  ];
  if (source.can.live) {
    ends.push(source.follow(loaded, heard));
    const timer = setInterval(() => {
      if (lives.peek() && document.visibilityState === 'visible') void loadSessions();
    }, LIVES_MS);
    ends.push(() => clearInterval(timer));
  }
  return () => ends.forEach((end) => end());
}

/** @param {import('../source/source.js').FollowState} state */
function heard(state) {
  // Erased texts are in many places by now; only a new page surely holds none of them.
  if (state === 'outdated') location.reload();
  else connection.value = state;
}

/** @param {Timeline} loaded */
function cursorIn(loaded) {
  const { at } = place.peek();
  return at === null ? loaded.requests.count - 1 : loaded.requestAt(at);
}

/** @param {Timeline} loaded @param {number} request @returns {[number, number]} */
function windowAround(loaded, request) {
  const count = loaded.requests.count;
  const width = Math.min(count, WIDEST_WINDOW);
  const middle = Math.round(Math.max(request, 0) - width / 2);
  const first = Math.max(0, Math.min(middle, count - width));
  return [first, first + width - 1];
}

/** @param {unknown} error */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Indexes of requests, ascending: where each hit stood first in view, or was added.
 * @type {import('./signals.js').Signal<readonly number[]>}
 */
export const hits = signal(/** @type {readonly number[]} */ ([]));
