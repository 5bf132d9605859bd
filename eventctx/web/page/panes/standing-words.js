// What became of a message at a request. The timeline calls an entry that lacks its thinking or
// some of its results whole; a person is told what is missing.

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/**
 * @param {Timeline} timeline
 * @param {number} number
 * @param {number} request
 * @returns {{what: string, change: number, extra: number|null}}
 */
export function standingAt(timeline, number, request) {
  if (request < 0) return { what: 'not_added', change: -1, extra: null };
  const { what, change, extra } = timeline.standing(number, request);
  const kind = extra === null ? null : timeline.entry(extra).kind;
  if (kind === 'stripped' || kind === 'partial') return { what: kind, change, extra };
  return { what, change, extra };
}
