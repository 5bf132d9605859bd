/** Long work in short slices, so that a key or a drag never waits for a chart. */

/** Well below a frame, and far below what a person feels. */
const SLICE_MS = 7;

/**
 * Runs a generator after the next paint, a slice at a time: it yields where it may be put aside.
 * @template T
 * @param {Generator<void, T, void>} work
 * @param {(result: T) => void} done
 * @returns {() => void} gives it up
 */
export function inSlices(work, done) {
  let given = false;
  function run() {
    if (given) return;
    const until = performance.now() + SLICE_MS;
    do {
      const step = work.next();
      if (step.done) {
        given = true;
        done(step.value);
        return;
      }
    } while (performance.now() < until);
    setTimeout(run);
  }
  // The frame callback is before the paint, its timeout after it.
  requestAnimationFrame(() => setTimeout(run));
  return () => {
    given = true;
  };
}

/**
 * Calls once in the next frame, however often it was asked for.
 * @param {() => void} paint
 * @returns {{ask: () => void, end: () => void}}
 */
export function oncePerFrame(paint) {
  let frame = 0;
  return {
    ask() {
      if (frame !== 0) return;
      frame = requestAnimationFrame(() => {
        frame = 0;
        paint();
      });
    },
    end() {
      cancelAnimationFrame(frame);
      frame = 0;
    },
  };
}
