// Texts of the rows in sight. A row is drawn at once with a placeholder of about its height; its text
// is asked for when the row still is there a moment later, many in one question. So scrolling
// past ten thousand rows asks for the few where it ends.

import { h } from '../core/element.js';
import { RecentValues } from '../core/keyed.js';
import { messageOf, source } from '../core/state.js';

/** @typedef {{position: number, index: number}} BodyAddress */

// Frames in which the person still scrolls; shorter than anybody notices.
const REST_MS = 40;
const MOST_AT_ONCE = 64;
const MOST_REMEMBERED = 2000;

/** Trees of a message's texts that have markup, by text.
 * @typedef {ReadonlyMap<string, readonly import('../parts/rendered.js').TreeNode[]>} TextTrees */
/** @typedef {(message: any, trees: TextTrees) => void} ShowBody */
/** @typedef {{element: HTMLElement, address: BodyAddress, show: ShowBody, wantsTrees: boolean}} WaitingBody */

// A text that is there is not held back longer for its markup.
const WAIT_FOR_TREES_MS = 600;

/** @type {TextTrees} */
const NO_TREES = new Map();

/** Bodies by session and address; the source remembers large ones. @type {RecentValues<any>} */
const rememberedBodies = new RecentValues(MOST_REMEMBERED);

/** Trees in the same way, of messages that were shown whole. @type {RecentValues<TextTrees>} */
const rememberedTrees = new RecentValues(MOST_REMEMBERED);

/** @type {Map<string, WaitingBody[]>} */
const waitingBodies = new Map();
let waitingTimer = 0;

/**
 * Calls `show` with the message at an address: at once if it is here, else when it came and the
 * element still is in the page. Null: its contents were erased. With `wantsTrees` its texts come
 * with their markup; where that takes long, `show` is called again with it.
 * @param {string} session
 * @param {BodyAddress} address
 * @param {HTMLElement} element
 * @param {ShowBody} show
 * @param {boolean} [wantsTrees]
 */
export function showBody(session, address, element, show, wantsTrees = false) {
  const key = bodyKey(session, address);
  const trees = wantsTrees ? rememberedTrees.get(key) : NO_TREES;
  if (rememberedBodies.has(key) && trees !== undefined) {
    show(rememberedBodies.get(key), trees);
    return;
  }
  const waiting = waitingBodies.get(session) ?? [];
  waiting.push({ element, address, show, wantsTrees });
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
    rememberedBodies.set(key, body ?? null);
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

/** @param {string} session @param {WaitingBody[]} wanted */
async function askFor(session, wanted) {
  const withTrees = wanted.filter((one) => one.wantsTrees);
  // A text without its markup is a text still.
  const asked = withTrees.length === 0
    ? Promise.resolve([])
    : source.rendered(session, withTrees.map((one) => one.address)).catch(() => []);
  const soon = new Promise((done) => setTimeout(done, WAIT_FOR_TREES_MS, null));
  try {
    const bodies = await source.bodies(session, wanted.map((one) => one.address));
    wanted.forEach(({ address }, at) => rememberedBodies.set(bodyKey(session, address), bodies[at] ?? null));
    const first = await Promise.race([asked, soon]);
    for (const one of wanted) if (first === null || !one.wantsTrees) showWith(session, one, NO_TREES);
    (await asked).forEach((texts, at) => {
      const { address } = withTrees[at];
      const key = bodyKey(session, address);
      rememberedTrees.set(key, treesByText(rememberedBodies.get(key), texts));
    });
    for (const one of withTrees) {
      const trees = rememberedTrees.get(bodyKey(session, one.address)) ?? NO_TREES;
      if (first !== null || trees.size > 0) showWith(session, one, trees);
    }
  } catch (error) {
    for (const one of wanted) one.element.replaceChildren(failedBody(session, one, messageOf(error)));
  }
}

/** @param {string} session @param {WaitingBody} one @param {TextTrees} trees */
function showWith(session, { element, address, show }, trees) {
  if (element.isConnected) show(rememberedBodies.get(bodyKey(session, address)) ?? null, trees);
}

/** @param {any} message @param {import('../source/source.js').RenderedTexts} texts @returns {TextTrees} */
function treesByText(message, texts) {
  const textAt = (/** @type {(string|number)[]} */ place) => place.reduce((value, key) => value?.[key], message);
  return new Map((texts ?? []).map(([place, tree]) => [String(textAt(place)), tree]));
}

/** @param {string} session @param {WaitingBody} one @param {string} message */
function failedBody(session, { element, address, show, wantsTrees }, message) {
  const again = () => showBody(session, address, element, show, wantsTrees);
  return h('p', { class: 'failed-body' },
    `This text could not be read: ${message} `,
    h('button', { type: 'button', text: 'Try again', on: { click: again } }));
}

/** @param {string} session @param {BodyAddress} address */
function bodyKey(session, { position, index }) {
  return `${position}.${index} ${session}`;
}
