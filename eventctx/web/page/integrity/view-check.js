/** Derives every request's view in the browser and compares its digest with the recorded one. */

import { MessageMarks, viewHolds } from '../timeline/digest.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/** Digests of a slice take about this long, so that the page answers in between. */
const CHECK_SLICE_MS = 12;

/**
 * @param {Timeline} timeline
 * @param {string[]} marks of all messages, in hex
 * @param {(done: number, of: number) => boolean} progress false: stop
 * @returns {Promise<{checked: number, differ: number[]}>} `differ`: indexes of requests
 */
export async function checkViews(timeline, marks, progress) {
  const known = new MessageMarks(marks);
  const { count } = timeline.requests;
  /** @type {number[]} */
  const differ = [];
  let since = performance.now();
  for (let request = 0; request < count; request++) {
    if (!(await viewHolds(timeline, request, known))) differ.push(request);
    if (performance.now() - since < CHECK_SLICE_MS) continue;
    if (!progress(request + 1, count)) return { checked: request + 1, differ };
    await new Promise((resolve) => setTimeout(resolve));
    since = performance.now();
  }
  progress(count, count);
  return { checked: count, differ };
}
