/** Keeps the rectangles of the presence map those of the window, and of the session as it grows. */

import { timeline } from '../core/state.js';
import { presenceRuns } from '../timeline/presence.js';
import { inSlices } from './slices.js';

/** @typedef {import('./presence-runs.js').PresenceRun} PresenceRun */

/**
 * Makes the rectangles of the window when it or the session has changed. One that is under way comes
 * to its end first: in a session that grows without pause, it would else never.
 * @param {{window: import('../core/signals.js').Computed<import('../core/request-window.js').RequestWindow>,
 *   runs: import('../core/signals.js').Signal<readonly PresenceRun[]>}} model
 */
export function runsMaker({ window, runs }) {
  /** @type {import('../timeline/timeline.js').Timeline | null} */
  let of = null;
  let stop = () => {};
  let isUnderWay = false;
  let isStale = false;
  function make() {
    const now = timeline.peek();
    isStale = false;
    if (now === null) return;
    isUnderWay = true;
    stop = inSlices(presenceRuns(now, window.peek()), (made) => {
      isUnderWay = false;
      runs.value = made;
      if (isStale) make();
    });
  }
  return {
    follow() {
      const now = timeline.value;
      now?.version.value;
      window.value;
      if (now !== of) {
        stop();
        isUnderWay = false;
        runs.value = [];
        of = now;
      }
      if (isUnderWay) isStale = true;
      else make();
    },
    end: () => stop(),
  };
}
