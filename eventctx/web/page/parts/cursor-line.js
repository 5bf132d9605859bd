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
  const back = stepButton('◀', 'The request before', () => setCursor(cursor.peek() - 1));
  const on = stepButton('▶', 'The next request', () => setCursor(cursor.peek() + 1));
  const latest = h('button', {
    type: 'button',
    class: 'quiet',
    text: 'Latest',
    on: { click: () => followEnd() },
  });
  const where = h('span', { class: 'cursor-where' });
  listenToSteps(host, screen, (by) => setCursor(cursor.peek() + by));
  host.effect(() => {
    const now = timeline.value;
    const request = cursor.value;
    back.disabled = request <= 0;
    on.disabled = now === null || request >= now.requests.count - 1;
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

/** @param {string} text @param {string} label @param {() => void} step */
function stepButton(text, label, step) {
  return h('button', { type: 'button', 'aria-label': label, text, on: { click: step } });
}
