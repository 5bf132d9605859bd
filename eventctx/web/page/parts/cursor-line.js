/** The request at the cursor in one line, with steps to its neighbours, for screens without a river. */

import { h } from '../core/element.js';
import { onKey } from '../core/keys.js';
import { countText, utcText } from './numbers.js';
import { cursor, followEnd, setCursor, timeline } from '../core/state.js';

/** @typedef {import('../core/element.js').Host} Host */
/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/**
 * @param {Host} host whose life the line shares
 * @param {string} screen on which the arrow keys step
 * @returns {HTMLElement}
 */
export function cursorLine(host, screen) {
  const step = (/** @type {number} */ by) => setCursor(cursor.peek() + by);
  const { back, on, show } = stepButtons(step);
  const latest = h('button', {
    type: 'button',
    class: 'quiet',
    text: 'Latest',
    on: { click: () => followEnd() },
  });
  const where = h('span', { class: 'cursor-where' });
  listenToSteps(host, screen, step);
  host.effect(() => {
    const now = timeline.value;
    const request = cursor.value;
    show(request, now?.requests.count ?? 0);
    latest.hidden = on.disabled;
    where.replaceChildren(...(now === null || request < 0 ? [] : whereNodes(now, request)));
  });
  return h('div', { class: 'cursor-line', role: 'group', 'aria-label': 'The request asked about' },
    back, where, on, latest);
}

/**
 * The arrow keys step from request to request, as they do in the session.
 *
 * @param {Host} host
 * @param {string} screen
 * @param {(by: 1 | -1) => void} step
 */
export function listenToSteps(host, screen, step) {
  const ends = [
    onKey('ArrowLeft', 'The request before', () => step(-1), { screen }),
    onKey('ArrowRight', 'The next request', () => step(1), { screen }),
  ];
  host.effect(() => () => ends.forEach((end) => end()));
}

/**
 * A request as a person names it: turn and iteration, or its position.
 * @param {Timeline} now
 * @param {number} request
 */
export function requestTitle(now, request) {
  return `request ${now.name(request)}`;
}

/** @param {Timeline} now @param {number} request */
function whereNodes(now, request) {
  const { position, time, count } = now.requests;
  return [
    h('strong', { text: requestTitle(now, request) }),
    h('span', { class: 'muted', text: ` ${countText(request + 1)} of ${countText(count)}` }),
    h('span', { class: 'muted wide-only', text: ` · @${position[request]} · ${utcText(time[request])}` }),
  ];
}

/**
 * The two buttons that step from a request to its neighbours.
 * @param {(by: 1 | -1) => void} step
 * @param {string} [side] of a comparison; without one the arrow keys step, too
 */
export function stepButtons(step, side = '') {
  const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {string} */ key, /** @type {1 | -1} */ by) =>
    h('button', {
      type: 'button', 'aria-label': `${side === '' ? 'The' : `${side}: the`} ${label}`, text,
      title: side === '' ? `The ${label} (${key})` : null, on: { click: () => step(by) },
    });
  const back = button('◀', 'request before', 'Left arrow', -1);
  const on = button('▶', 'next request', 'Right arrow', 1);
  return {
    back,
    on,
    show(/** @type {number} */ request, /** @type {number} */ count) {
      back.disabled = request <= 0;
      on.disabled = request >= count - 1;
    },
  };
}
