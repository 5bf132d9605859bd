// What the drawer explains while nothing is chosen: what a person most likely came for.

import { h } from '../core/element.js';
import { HUMAN_KIND } from '../timeline/groups.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/**
 * A message of the person that the request was not sent, one with a demand before others; else the
 * newest that the person wrote.
 * @param {Timeline} now
 * @param {number} request
 * @returns {{message: number, isLost: boolean} | null}
 */
export function suggestedMessage(now, request) {
  const lost = now.wordsOutOfView(request).map(({ number }) => number);
  const missed = lost.find((number) => now.messages.demands[number] > 0) ?? lost[0];
  if (missed !== undefined) return { message: missed, isLost: true };
  let message = now.requests.last[request] ?? -1;
  while (message >= 0 && now.messages.kind[message] !== HUMAN_KIND) message -= 1;
  return message < 0 ? null : { message, isLost: false };
}

/**
 * Why this message is shown, and how to choose another.
 * @param {{isLost: boolean} | null} suggested
 * @returns {HTMLElement}
 */
export function suggestionLine(suggested) {
  const about = suggested === null ? '' : suggested.isLost ? 'You wrote this, and it is not in view. ' : 'Your newest message. ';
  return h('p', { class: 'muted why-suggested' }, `${about}Click any message to read why it is sent or not, or press `,
    h('kbd', { text: 'j' }), ' or ', h('kbd', { text: 'n' }), '.');
}
