// How a request is known, and whether the view that the browser derives has the digest that was
// recorded with the request. The marks that a digest covers are asked for once a session.

import { signal } from '../core/signals.js';
import { cursor, source } from '../core/state.js';
import { KNOWN_WORDS } from '../parts/standing.js';
import { MessageMarks, viewHolds } from '../timeline/digest.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {'waiting'|'holds'|'differs'|'unknown'} Verification */

const REST_BEFORE_CHECK_MS = 120;

/** @type {WeakMap<Timeline, {results: Map<number, import('../core/signals.js').Signal<Verification>>,
 *   marks: Promise<MessageMarks>|null, head: number}>} */
const checkedRequests = new WeakMap();

/** @param {Timeline} timeline @param {number} request @returns {import('../core/signals.js').Signal<Verification>} */
export function verification(timeline, request) {
  let known = checkedRequests.get(timeline);
  if (known === undefined) {
    known = { results: new Map(), marks: null, head: -1 };
    checkedRequests.set(timeline, known);
  }
  const found = known.results.get(request);
  if (found !== undefined) return found;
  /** @type {import('../core/signals.js').Signal<Verification>} */
  const result = signal(/** @type {Verification} */ ('waiting'));
  known.results.set(request, result);
  // Scrubbing goes past hundreds; they are cheap, but not while the person moves.
  setTimeout(() => void checkRequest(timeline, request, result), REST_BEFORE_CHECK_MS);
  return result;
}

/**
 * @param {Timeline} timeline
 * @param {number} request
 * @param {import('../core/signals.js').Signal<Verification>} result
 */
async function checkRequest(timeline, request, result) {
  const known = checkedRequests.get(timeline);
  if (known === undefined) return;
  if (cursor.peek() !== request) {
    known.results.delete(request); // the person went on; the next look tries again
    return;
  }
  try {
    const marks = await marksUpTo(timeline, known, request);
    result.value = (await viewHolds(timeline, request, marks)) ? 'holds' : 'differs';
  } catch {
    // Without marks (an old export) nothing is claimed; the next look tries again.
    known.results.delete(request);
    result.value = 'unknown';
  }
}

/**
 * @param {Timeline} timeline
 * @param {{marks: Promise<MessageMarks>|null, head: number}} known
 * @param {number} request
 */
async function marksUpTo(timeline, known, request) {
  const needed = timeline.requests.last[request];
  let marks = known.marks === null ? null : await known.marks;
  if (marks === null || marks.count <= needed) {
    known.marks = source.digests(timeline.session).then((found) => new MessageMarks(found));
    marks = await known.marks;
  }
  return marks;
}

/**
 * The word for how a request is known, and a sign. What holds is verified where the digest was
 * recorded with what was sent, and consistent where an importer made it: the command line's words.
 * @param {Timeline} timeline
 * @param {number} request
 * @param {Verification} state
 * @returns {{word: string, sign: string}}
 */
export function verdictWord(timeline, request, state) {
  const known = KNOWN_WORDS[timeline.requests.known[request]];
  if (state === 'differs') return { word: 'does not verify', sign: '✗' };
  if (state === 'holds') {
    if (known === 'reconstructed') return { word: 'reconstructed, consistent', sign: '' };
    return { word: known === 'observed' ? 'observed, verified' : 'verified', sign: '✓' };
  }
  return { word: state === 'waiting' && known !== 'reconstructed' ? `${known}, verifying…` : known, sign: '' };
}

/**
 * What that word means, in sentences.
 * @param {Timeline} timeline
 * @param {number} request
 * @param {Verification} state
 * @returns {string}
 */
export function meaningOfKnown(timeline, request, state) {
  const known = KNOWN_WORDS[timeline.requests.known[request]];
  const check = {
    holds: 'This page derived the view by itself, and its digest is the recorded one.',
    differs: 'The view that this page derived has another digest than the recorded one: `eventctx verify` says what was changed.',
    waiting: 'This page is deriving the view to compare its digest with the recorded one.',
    unknown: 'The digests of the messages are not here, so this page cannot compare.',
  }[state];
  if (known === 'observed') {
    return `The client sent this request and its own records hold it, so it is rebuilt as it was sent. ${check}`;
  }
  if (known === 'prepared') {
    return `This library prepared the request, and recorded its digest before it was sent. ${check}`;
  }
  return `An importer derived this request from a file that does not hold what was sent: the messages are its, `
    + `what stood beside them is not known. ${check.replace('the recorded one', 'the one that the importer recorded')}`;
}
