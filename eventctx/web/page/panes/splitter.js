// A border between two panels that can be moved: with the pointer, or with the arrow keys.

import { h } from '../core/element.js';
import { keepChoice, keptChoice } from '../core/kept.js';

/**
 * `vertical`: it stands upright and moves sideways. `grows` is 1 if the panel that it sizes lies
 * before it, -1 if after. `variable` is the custom property of `holder` with the panel's size.
 * @typedef {object} SplitterOptions
 * @property {string} label the panel that it sizes
 * @property {boolean} vertical
 * @property {1|-1} grows
 * @property {string} variable
 * @property {number} initial pixels
 * @property {number} least
 * @property {() => number} most
 */

const STEP = 16;

/** @param {HTMLElement} holder @param {SplitterOptions} options @returns {HTMLElement} */
export function splitter(holder, options) {
  const { label, vertical, grows, variable, initial, least, most } = options;
  let size = keptChoice(variable, initial);
  const bar = h('div', {
    class: `splitter ${vertical ? 'is-vertical' : 'is-horizontal'}`, role: 'separator', tabindex: 0,
    'aria-orientation': vertical ? 'vertical' : 'horizontal', 'aria-label': `Size of ${label}`,
    title: 'Drag, or move with the arrow keys; double click for the usual size',
  });
  const set = (/** @type {number} */ wanted) => {
    const top = Math.max(least, most());
    size = Math.round(Math.max(least, Math.min(wanted, top)));
    holder.style.setProperty(variable, `${size}px`);
    bar.setAttribute('aria-valuemin', String(least));
    bar.setAttribute('aria-valuemax', String(Math.round(top)));
    bar.setAttribute('aria-valuenow', String(size));
  };
  const keep = () => keepChoice(variable, size);
  bar.addEventListener('keydown', (event) => {
    const [less, more] = vertical ? ['ArrowLeft', 'ArrowRight'] : ['ArrowUp', 'ArrowDown'];
    const by = event.key === more ? grows * STEP : event.key === less ? -grows * STEP : 0;
    if (event.key === 'Home') set(least);
    else if (event.key === 'End') set(most());
    else if (by === 0) return;
    else set(size + by);
    event.preventDefault();
    keep();
  });
  bar.addEventListener('dblclick', () => {
    set(initial);
    keep();
  });
  bar.addEventListener('pointerdown', (event) => {
    bar.setPointerCapture(event.pointerId);
    const from = vertical ? event.clientX : event.clientY;
    const before = size;
    const move = (/** @type {PointerEvent} */ now) =>
      set(before + grows * ((vertical ? now.clientX : now.clientY) - from));
    bar.addEventListener('pointermove', move);
    bar.addEventListener('lostpointercapture', () => {
      bar.removeEventListener('pointermove', move);
      keep();
    }, { once: true });
  });
  set(size);
  return bar;
}
