// Rows of the lists hold links and buttons; a list of thousands must not have thousands of stops for
// the Tab key. Only those of the row that has the focus are stops.

const ROW_CONTROLS = 'a[href], button, summary';

/** @param {HTMLElement} host @returns {() => void} ends it */
export function limitTabStops(host) {
  // Texts come when they come, so the stops are set when the key is pressed, before it acts.
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Tab') setRowStops(host);
  };
  document.addEventListener('keydown', pressed, { capture: true });
  return () => document.removeEventListener('keydown', pressed, { capture: true });
}

/** @param {HTMLElement} host */
function setRowStops(host) {
  for (const list of host.querySelectorAll('ctx-virtual-list')) {
    const { focused } = /** @type {import('../parts/virtual-list.js').VirtualList} */ (list);
    for (const row of list.querySelectorAll('.list-row')) {
      const isStop = row.getAttribute('aria-posinset') === String(focused + 1);
      for (const control of row.querySelectorAll(ROW_CONTROLS)) {
        if (isStop) control.removeAttribute('tabindex');
        else control.setAttribute('tabindex', '-1');
      }
    }
  }
}
