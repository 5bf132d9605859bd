/**
 * Where the page is: the one thing that is in its address.
 *
 * Positions of the log never change their meaning, so an address is a permanent link:
 * `/s/demo/lost?at=336&msg=40`. `/` is the list, `/search` is over all sessions. In an exported file, which has no paths, the same is after `#`.
 */

import { signal } from './signals.js';

/** @typedef {'sessions' | 'session' | 'lost' | 'compare' | 'search' | 'integrity'} ScreenName */

/**
 * `at` and `partner` are positions of records, `message` the number of a message.
 * @typedef {{screen: ScreenName, session: string | null, at: number | null, message: number | null,
 *   partner: number | null, tab: string, query: string}} Place
 */

/** @type {ReadonlySet<string>} */
const SCREENS_OF_SESSION = new Set(['lost', 'compare', 'search', 'integrity']);

/** @type {Place} */
const START = {
  screen: 'sessions',
  session: null,
  at: null,
  message: null,
  partner: null,
  tab: '',
  query: '',
};

/** @type {import('./signals.js').Signal<Place>} */
export const place = signal(START);

let inHash = false;

/**
 * Reads the address, and follows it from now on.
 * @param {{hash: boolean}} options whether the place stands after `#`
 */
export function startPlace({ hash }) {
  inHash = hash;
  readAddress();
  globalThis.addEventListener('popstate', readAddress);
  globalThis.addEventListener('hashchange', readAddress);
}

/**
 * Goes to another place: what is not named stays, but another session forgets what belongs to the
 * one before. `replace` leaves no step for the browser's back button.
 * @param {Partial<Place>} changes
 * @param {{replace?: boolean}} [options]
 */
export function go(changes, { replace = false } = {}) {
  const next = placeAfter(place.peek(), changes);
  const address = linkToPlace(next);
  if (address === linkToPlace(place.peek())) return;
  if (replace) replaceAddress(address);
  else pushAddress(address);
  place.value = next;
}

/** The address that `go` would lead to. @param {Partial<Place>} changes @returns {string} */
export function linkTo(changes) {
  return linkToPlace(placeAfter(place.peek(), changes));
}

/** Goes where a link of the page leads. @param {string} href */
export function openLink(href) {
  pushAddress(href);
  readAddress();
}

/** @param {Place} from @param {Partial<Place>} changes @returns {Place} */
export function placeAfter(from, changes) {
  const another = changes.session !== undefined && changes.session !== from.session;
  const next = { ...(another ? START : from), ...changes };
  if (next.session === null) {
    const screen = next.screen === 'search' ? 'search' : 'sessions';
    return { ...START, screen, tab: next.tab, query: next.query };
  }
  // The words of a search or of a comparison mean nothing elsewhere.
  const isLeft = from.screen === 'search' || from.screen === 'compare' || next.screen === 'search';
  if (isLeft && next.screen !== from.screen && changes.tab === undefined) next.tab = '';
  return next.screen === 'sessions' ? { ...next, screen: 'session' } : next;
}

/** @param {Place} to @returns {string} */
export function formatPlace(to) {
  const parameters = new URLSearchParams();
  if (to.at !== null) parameters.set('at', String(to.at));
  if (to.message !== null) parameters.set('msg', String(to.message));
  if (to.partner !== null) parameters.set('cmp', String(to.partner));
  if (to.tab !== '') parameters.set('tab', to.tab);
  if (to.query !== '') parameters.set('q', to.query);
  let path = to.screen === 'search' ? '/search' : '/';
  if (to.session !== null) {
    // No session is named . or .. or with a slash, which a path could not hold; half a surrogate
    // pair cannot be encoded, and is in no name either.
    path = `/s/${encodeURIComponent(to.session.toWellFormed())}`;
    if (SCREENS_OF_SESSION.has(to.screen)) path += `/${to.screen}`;
  }
  const behind = parameters.toString();
  return behind === '' ? path : `${path}?${behind}`;
}

/** @param {string} address path and query, as `formatPlace` makes them @returns {Place} */
export function parsePlace(address) {
  const cut = address.indexOf('?');
  const path = cut < 0 ? address : address.slice(0, cut);
  const parameters = new URLSearchParams(cut < 0 ? '' : address.slice(cut + 1));
  const tab = parameters.get('tab') ?? '';
  const query = parameters.get('q') ?? '';
  const [, s, encoded = '', screen = ''] = path.split('/');
  const session = s === 's' ? decoded(encoded) : null;
  if (session === null || session === '') {
    return { ...START, screen: s === 'search' ? 'search' : 'sessions', tab, query };
  }
  return {
    screen: /** @type {ScreenName} */ (SCREENS_OF_SESSION.has(screen) ? screen : 'session'),
    session,
    at: wholeNumber(parameters.get('at')),
    message: wholeNumber(parameters.get('msg')),
    partner: wholeNumber(parameters.get('cmp')),
    tab,
    query,
  };
}

/** @param {string} encoded */
function decoded(encoded) {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return null; // a stray % in an address that was typed
  }
}

/** @param {string | null} digits */
function wholeNumber(digits) {
  return digits !== null && /^\d{1,15}$/.test(digits) ? Number(digits) : null;
}

/** @param {Place} to */
function linkToPlace(to) {
  return inHash ? `#${formatPlace(to)}` : formatPlace(to);
}

function readAddress() {
  forgetWaitingAddress();
  const address = inHash ? location.hash.slice(1) : location.pathname + location.search;
  const next = parsePlace(address);
  if (formatPlace(next) !== formatPlace(place.peek())) place.value = next;
}

// The address is not written more often than a browser takes it. A scrub goes through hundreds of
// places. Each change of the address is a message to the browser's own process: it costs some
// milliseconds, and after two hundred in ten seconds a browser drops them. So the first one is
// written at once, and of those that follow the last.
const PAUSE_MS = 120;

/** @type {string | null} */
let waitingAddress = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let pause;

/** In place of the address of now: no step for the back button. @param {string} address */
export function replaceAddress(address) {
  waitingAddress = address;
  if (pause === undefined) writeWaitingAddress();
}

/**
 * A step for the back button. What waited belongs to the step before, so it is written first.
 * @param {string} address
 */
export function pushAddress(address) {
  if (waitingAddress !== null) history.replaceState(null, '', waitingAddress);
  waitingAddress = null;
  history.pushState(null, '', address);
}

/** The browser has gone elsewhere: what waited must not be written over that. */
export function forgetWaitingAddress() {
  waitingAddress = null;
}

function writeWaitingAddress() {
  pause = undefined;
  if (waitingAddress === null) return;
  history.replaceState(null, '', waitingAddress);
  waitingAddress = null;
  pause = setTimeout(writeWaitingAddress, PAUSE_MS);
}
