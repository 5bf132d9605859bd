/** Dragging and pointing on a chart, at most once a frame. */

import { oncePerFrame } from './slices.js';

/**
 * Where a pointer is, in pixels from the corner of its chart. @typedef {{x: number, y: number}} Point
 * @typedef {{press?: (at: Point, event: PointerEvent) => boolean | void, drag?: (at: Point) => void,
 *   release?: (at: Point) => void, hover?: (at: Point | null) => void}} PointerUse
 */

/**
 * `press` returns false to leave the pointer alone. The last place of a frame counts.
 * @param {HTMLElement} box
 * @param {PointerUse} use
 * @returns {() => void}
 */
export function usePointer(box, { press, drag, release, hover }) {
  /** @type {Point} */
  let at = { x: 0, y: 0 };
  let isDown = false;
  let isOver = false;
  const frame = oncePerFrame(() => {
    if (isDown) drag?.(at);
    else hover?.(isOver ? at : null);
  });
  /** @param {PointerEvent} event */
  function note({ clientX, clientY }) {
    const { left, top } = box.getBoundingClientRect();
    at = { x: clientX - left, y: clientY - top };
  }
  /** @type {Record<string, (event: PointerEvent) => void>} */
  const listeners = {
    pointerdown(event) {
      if (event.button !== 0) return;
      note(event);
      if (press?.(at, event) === false) return;
      isDown = true;
      box.setPointerCapture(event.pointerId);
    },
    pointermove(event) {
      note(event);
      isOver = true;
      frame.ask();
    },
    pointerup(event) {
      if (!isDown) return;
      note(event);
      drag?.(at);
      isDown = false;
      release?.(at);
    },
    pointercancel() {
      isDown = false;
    },
    pointerleave() {
      isOver = false;
      frame.ask();
    },
  };
  for (const [name, listener] of Object.entries(listeners)) {
    box.addEventListener(name, /** @type {EventListener} */ (listener));
  }
  return () => {
    frame.end();
    for (const [name, listener] of Object.entries(listeners)) {
      box.removeEventListener(name, /** @type {EventListener} */ (listener));
    }
  };
}
