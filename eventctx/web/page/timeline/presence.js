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
 * @param {Timeline} timeline
 * @param {number} firstMessage
 * @param {number} lastMessage
 * @param {number} firstRequest
 * @param {number} lastRequest
 * @returns {PresenceRun[]}
 */
export function presenceOf(timeline, firstMessage, lastMessage, firstRequest, lastRequest) {
  const top = Math.max(0, firstMessage);
  const bottom = Math.min(lastMessage, timeline.messages.count - 1);
  const left = Math.max(0, firstRequest);
  const right = Math.min(lastRequest, timeline.requests.count - 1);
  if (top > bottom || left > right) return [];
  const sweep = new PresenceSweep(timeline, top, bottom, left);
  for (let request = left + 1; request <= right; request++) sweep.step(request);
  return sweep.finish(right);
}

export class PresenceSweep {
  /** @param {Timeline} timeline @param {number} top @param {number} bottom @param {number} request */
  constructor(timeline, top, bottom, request) {
    this.timeline = timeline;
    this.top = top;
    this.now = timeline.standings(request).slice(top, bottom + 1);
    this.since = new Int32Array(this.now.length).fill(request);
    this.shown = this.now.map((code) => (code < IN_VIEW_BELOW ? code : NOT_SHOWN));
    this.view = columnOf(timeline.view(request).slice());
    /** The request at which a message was last looked at: a step looks at each once. */
    this.seen = new Int32Array(this.now.length).fill(-1);
    /** Places that one step looks at. */
    this.touched = integerColumn();
    /** @type {PresenceRun[]} */
    this.runs = [];
  }

  /** Goes on from the request before to `request`. @param {number} request */
  step(request) {
    const { timeline, view } = this;
    const { views, changeTable } = timeline;
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
    const changes = changeTable.before(position[request]);
    for (let at = changeTable.before(position[request - 1]); at < changes; at++) {
      this.touchRun(changeTable.first.space[at], changeTable.last.space[at], request);
    }
    const out = changeTable.standingsAfter(changes, timeline.messages.count);
    let others = 0;
    const { touched, now, since } = this;
    for (const place of touched.values) {
      if (this.standingAt(place, last[request], out) !== now[place]) touched.space[others++] = place;
    }
    const other = touched.space.subarray(0, others).sort();
    this.close(other, request - 1);
    for (const place of other) {
      now[place] = this.standingAt(place, last[request], out);
      since[place] = request;
    }
  }

  /**
   * @param {number} place
   * @param {number} last the last message that was added
   * @param {Uint8Array} out standings of messages out of view
   */
  standingAt(place, last, out) {
    if (this.shown[place] !== NOT_SHOWN) return this.shown[place];
    return this.top + place > last ? STANDING_NOT_ADDED : out[this.top + place];
  }

  /** @param {number} id an entry that came or went @param {number} code as what it is shown @param {number} request */
  show(id, code, request) {
    const place = shownNumber(this.timeline.extras, id) - this.top;
    if (place < 0 || place >= this.shown.length) return;
    this.shown[place] = code;
    this.touch(place, request);
  }

  /** @param {number} place @param {number} request */
  touch(place, request) {
    if (this.seen[place] === request) return;
    this.seen[place] = request;
    this.touched.push(place);
  }

  /** @param {number} first @param {number} last @param {number} request */
  touchRun(first, last, request) {
    const end = Math.min(last - this.top, this.now.length - 1);
    for (let place = Math.max(first - this.top, 0); place <= end; place++) this.touch(place, request);
  }

  /**
   * Ends the standings of these messages with request `last`; neighbours alike are one rectangle.
   * @param {Int32Array} places in rising order
   * @param {number} last
   */
  close(places, last) {
    for (let at = 0; at < places.length; ) {
      const start = places[at];
      const what = this.now[start];
      const since = this.since[start];
      let end = start;
      for (at++; at < places.length; at++) {
        const next = places[at];
        if (next !== end + 1 || this.now[next] !== what || this.since[next] !== since) break;
        end = next;
      }
      if (what === STANDING_NOT_ADDED) continue;
      this.runs.push({
        number: this.top + start,
        until: this.top + end,
        first: since,
        last,
        what: STANDINGS[what],
      });
    }
  }

  /** Ends all standings with request `last`. @param {number} last @returns {PresenceRun[]} */
  finish(last) {
    const places = new Int32Array(this.now.length);
    for (let place = 0; place < places.length; place++) places[place] = place;
    this.close(places, last);
    return this.runs;
  }
}
