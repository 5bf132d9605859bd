// Texts of the rows in sight. A row is drawn at once with a placeholder of about its height; its text
// is asked for when the row still is there a moment later, many in one question. So scrolling
// past ten thousand rows asks for the few where it ends.

import { h } from '../core/element.js';
import { messageOf, source } from '../core/state.js';

/** @typedef {{position: number, index: number}} BodyAddress */

// Frames in which the person still scrolls; shorter than anybody notices.
const REST_MS = 40;
const MOST_AT_ONCE = 64;
const MOST_REMEMBERED = 2000;

/** @typedef {{element: HTMLElement, address: BodyAddress, show: (message: any) => void}} WaitingBody */

/** Bodies by session and address, in the order of use. @type {Map<string, any>} */
const rememberedBodies = new Map();

/** @type {Map<string, WaitingBody[]>} */
const waitingBodies = new Map();
let waitingTimer = 0;

/**
 * Calls `show` with the message at an address: at once if it is here, else when it came and the
 * element still is in the page. Null: its contents were erased.
 * @param {string} session
 * @param {BodyAddress} address
 * @param {HTMLElement} element
 * @param {(message: any) => void} show
 */
export function showBody(session, address, element, show) {
  const key = bodyKey(session, address);
  if (rememberedBodies.has(key)) {
    show(rememberedBodies.get(key));
    return;
  }
  const waiting = waitingBodies.get(session) ?? [];
  waiting.push({ element, address, show });
  waitingBodies.set(session, waiting);
  if (waitingTimer === 0) waitingTimer = window.setTimeout(askWaiting, REST_MS);
}

/**
 * One body, for a pane that shows no list.
 * @param {string} session
 * @param {BodyAddress} address
 * @returns {Promise<any>}
 */
export async function bodyOf(session, address) {
  const key = bodyKey(session, address);
  if (!rememberedBodies.has(key)) {
    const [body] = await source.bodies(session, [address]);
    rememberBody(key, body ?? null);
  }
  return rememberedBodies.get(key);
}

function askWaiting() {
  waitingTimer = 0;
  for (const [session, waiting] of waitingBodies) {
    const wanted = waiting.filter((one) => one.element.isConnected);
    for (let at = 0; at < wanted.length; at += MOST_AT_ONCE) {
      void askFor(session, wanted.slice(at, at + MOST_AT_ONCE));
    }
  }
  waitingBodies.clear();
}

/**
 * @param {string} session
 * @param {WaitingBody[]} wanted
 */
async function askFor(session, wanted) {
  try {
    const bodies = await source.bodies(session, wanted.map((one) => one.address));
    wanted.forEach(({ address, element, show }, at) => {
      rememberBody(bodyKey(session, address), bodies[at] ?? null);
      if (element.isConnected) show(bodies[at] ?? null);
    });
  } catch (error) {
    for (const one of wanted) one.element.replaceChildren(failedBody(session, one, messageOf(error)));
  }
}

/**
 * @param {string} session
 * @param {WaitingBody} one
 * @param {string} message
 */
function failedBody(session, { element, address, show }, message) {
  const again = () => showBody(session, address, element, show);
  return h('p', { class: 'failed-body' },
    `This text could not be read: ${message} `,
    h('button', { type: 'button', text: 'Try again', on: { click: again } }));
}

/**
 * @param {string} key
 * @param {any} body
 */
function rememberBody(key, body) {
  rememberedBodies.delete(key);
  // A text that may still come is not remembered as erased; the source remembers large ones.
  rememberedBodies.set(key, body);
  if (rememberedBodies.size <= MOST_REMEMBERED) return;
  for (const oldest of rememberedBodies.keys()) {
    rememberedBodies.delete(oldest);
    break;
  }
}

/** @param {string} session @param {BodyAddress} address */
function bodyKey(session, { position, index }) {
  return `${position}.${index} ${session}`;
}
