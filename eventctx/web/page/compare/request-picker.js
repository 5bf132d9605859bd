/** One side of a comparison: a field that names a request, with steps to its neighbours. */

import { h } from '../core/element.js';
import { stepButtons } from '../parts/cursor-line.js';
import { utcText } from '../parts/numbers.js';
import { notify } from '../core/state.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/**
 * @param {string} side A or B
 * @param {(request: number) => void} pick
 * @returns {{element: HTMLElement, show: (now: Timeline, request: number) => void}}
 */
export function requestPicker(side, pick) {
  /** @type {{now: Timeline | null, request: number}} */
  const held = { now: null, request: -1 };
  const steps = stepButtons((by) => pick(held.request + by), side);
  const field = h('input', {
    type: 'text', class: 'request-field', 'aria-label': `Request ${side}: such as 2.3 or @48`,
    autocomplete: 'off', spellcheck: 'false', on: { change: () => typed() },
  });
  const when = h('span', { class: 'muted' });
  function typed() {
    const found = held.now === null ? -1 : held.now.requestNamed(field.value);
    if (found >= 0) pick(found);
    else {
      notify(`No request is named ${field.value}: write 2.3 or @48.`, { isError: true });
      if (held.now !== null) field.value = held.now.name(held.request);
    }
  }
  return {
    element: h('div', { class: 'request-picker' },
      h('span', { class: 'side-mark', 'aria-hidden': 'true', text: side }), steps.back, field, steps.on, when),
    show(now, request) {
      Object.assign(held, { now, request });
      field.value = request < 0 ? '' : now.name(request);
      steps.show(request, now.requests.count);
      when.textContent = request < 0 ? '' : `@${now.requests.position[request]} · ${utcText(now.requests.time[request])}`;
    },
  };
}
