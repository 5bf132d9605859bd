/**
 * Writes the page's address, not more often than a browser takes it.
 *
 * A scrub goes through hundreds of places. Each change of the address is a message to the browser's
 * own process: it costs some milliseconds, and after two hundred in ten seconds a browser drops them.
 * So the first one is written at once, and of those that follow the last.
 */

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
