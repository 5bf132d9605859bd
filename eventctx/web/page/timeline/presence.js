/**
 * When each message was in view, as rectangles: messages `number` to `until`, requests `first` to
 * `last`, all with one standing.
 *
 * A plan takes out runs of messages and holds until the next one. So from one request to the next
 * only messages after the kept entries, and those of changes in between, can stand otherwise; a
 * rectangle ends where one of these does. What was not added yet has none.
 */

import { columnOf, integerColumn } from './columns.js';
import { shownAs, shownNumber } from './entries.js';
import { IN_VIEW_BELOW, STANDINGS, STANDING_NOT_ADDED } from './standing.js';

/** @import { Timeline } from './timeline.js' */

/** @typedef {{number: number, until: number, first: number, last: number, what: string}} PresenceRun */

const NOT_SHOWN = 255;

/**
 * All rectangles of a window of requests; yields after each request.
 * @param {Timeline} timeline
 * @param {readonly [number, number]} window
 * @returns {Generator<void, PresenceRun[], void>}
 */
export function* presenceRuns(timeline, [first, last]) {
  if (timeline.messages.count === 0 || last < first) return [];
  // Messages that come while this goes on are for the next sweep.
  const sweep = new PresenceSweep(timeline, first);
  for (let request = first + 1; request <= last; request += 1) {
    yield;
    sweep.step(request);
  }
  yield;
  return sweep.finish(last);
}

class PresenceSweep {
  /** @param {Timeline} timeline @param {number} request */
  constructor(timeline, request) {
    this.timeline = timeline;
    this.now = timeline.standings(request).slice();
    this.since = new Int32Array(this.now.length).fill(request);
    this.shown = this.now.map((code) => (code < IN_VIEW_BELOW ? code : NOT_SHOWN));
    this.view = columnOf(timeline.view(request).slice());
    /** The request at which a message was last looked at: a step looks at each once. */
    this.seen = new Int32Array(this.now.length).fill(-1);
    /** Messages that one step looks at. */
    this.touched = integerColumn();
    /** @type {PresenceRun[]} */
    this.runs = [];
  }

  /** Goes on from the request before to `request`. @param {number} request */
  step(request) {
    const { timeline, view } = this;
    const { views, changes } = timeline;
    const { position, last } = timeline.requests;
    this.touched.count = 0;
    const keep = views.keep.space[request];
    for (let at = keep; at < view.count; at++) this.show(view.space[at], NOT_SHOWN, request);
    view.count = keep;
    const added = view.count;
    views.eachAdded(request, (from, to) => {
      for (let id = from; id <= to; id++) view.push(id);
    });
    for (let at = added; at < view.count; at++) {
      this.show(view.space[at], shownAs(timeline.extras, view.space[at]), request);
    }
    this.touchRun(last[request - 1] + 1, last[request], request);
    const end = changes.before(position[request]);
    for (let at = changes.before(position[request - 1]); at < end; at++) {
      this.touchRun(changes.first[at], changes.last[at], request);
    }
    const out = changes.standingsAfter(end, timeline.messages.count);
    let others = 0;
    const { touched, now, since } = this;
    for (const message of touched.values) {
      if (this.standingAt(message, last[request], out) !== now[message]) touched.space[others++] = message;
    }
    const other = touched.space.subarray(0, others).sort();
    this.close(other, request - 1);
    for (const message of other) {
      now[message] = this.standingAt(message, last[request], out);
      since[message] = request;
    }
  }

  /**
   * @param {number} message
   * @param {number} last the last message that was added
   * @param {Uint8Array} out standings of messages out of view
   */
  standingAt(message, last, out) {
    if (this.shown[message] !== NOT_SHOWN) return this.shown[message];
    return message > last ? STANDING_NOT_ADDED : out[message];
  }

  /** @param {number} id an entry that came or went @param {number} code as what it is shown @param {number} request */
  show(id, code, request) {
    const message = shownNumber(this.timeline.extras, id);
    if (message < 0 || message >= this.shown.length) return;
    this.shown[message] = code;
    this.touch(message, request);
  }

  /** @param {number} message @param {number} request */
  touch(message, request) {
    if (this.seen[message] === request) return;
    this.seen[message] = request;
    this.touched.push(message);
  }

  /** @param {number} first @param {number} last @param {number} request */
  touchRun(first, last, request) {
    const end = Math.min(last, this.now.length - 1);
    for (let message = Math.max(first, 0); message <= end; message++) this.touch(message, request);
  }

  /**
   * Ends the standings of these messages with request `last`; neighbours alike are one rectangle.
   * @param {Int32Array} messages in rising order
   * @param {number} last
   */
  close(messages, last) {
    for (let at = 0; at < messages.length; ) {
      const start = messages[at];
      const what = this.now[start];
      const since = this.since[start];
      let end = start;
      for (at++; at < messages.length; at++) {
        const next = messages[at];
        if (next !== end + 1 || this.now[next] !== what || this.since[next] !== since) break;
        end = next;
      }
      if (what === STANDING_NOT_ADDED) continue;
      this.runs.push({
        number: start,
        until: end,
        first: since,
        last,
        what: STANDINGS[what],
      });
    }
  }

  /** Ends all standings with request `last`. @param {number} last @returns {PresenceRun[]} */
  finish(last) {
    const messages = new Int32Array(this.now.length);
    for (let message = 0; message < messages.length; message++) messages[message] = message;
    this.close(messages, last);
    return this.runs;
  }
}
