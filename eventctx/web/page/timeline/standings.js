/**
 * The standing of every message at a request: of the view, and of the changes before it.
 */

import { RecentValues } from '../core/keyed.js';
import { shownAs, shownNumber } from './entries.js';
import { IN_VIEW_BELOW, STANDING_NOT_ADDED, STANDING_OMITTED, STANDINGS } from './standing.js';

/** @import { Timeline } from './timeline.js' */

/** @typedef {{what: string, change: number, extra: number | null}} MessageStanding */

/** How many requests' standings are kept: a byte for each message. */
const MOST_STANDINGS = 8;

export class StandingTable {
  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    /** @type {RecentValues<Uint8Array>} */
    this.known = new RecentValues(MOST_STANDINGS);
  }

  /** The timeline has grown. */
  forget() {
    this.known.clear();
  }

  /** How many changes lie before a request. @param {number} request */
  changesBefore(request) {
    return this.timeline.changes.before(this.timeline.requests.position[request]);
  }

  /** @param {number} request @returns {Uint8Array} codes of all messages */
  at(request) {
    const known = this.known.get(request);
    if (known) return known;
    const { changes, extras, messages, requests } = this.timeline;
    const out = changes.standingsAfter(this.changesBefore(request), messages.count);
    const codes = out.slice(0, messages.count);
    codes.fill(STANDING_NOT_ADDED, requests.last[request] + 1);
    for (const id of this.timeline.view(request)) {
      const number = shownNumber(extras, id);
      if (number >= 0) codes[number] = shownAs(extras, id);
    }
    return this.known.set(request, codes);
  }

  /** @param {number} number @param {number} request @returns {MessageStanding} */
  of(number, request) {
    const { changes, extras } = this.timeline;
    const code = this.at(request)[number] ?? STANDING_NOT_ADDED;
    const what = STANDINGS[code];
    if (code === STANDING_NOT_ADDED) return { what, change: -1, extra: null };
    if (code >= IN_VIEW_BELOW) return { what, change: this.outBy(number, code, request), extra: null };
    const view = this.timeline.view(request);
    const id = view.find((one) => one < 0 && shownNumber(extras, one) === number) ?? null;
    const kind = id === null ? 'message' : extras[-id - 1].kind;
    if (kind === 'message' || kind === 'partial') return { what, change: -1, extra: id };
    const cause = kind === 'shortened' ? 'shortened' : 'thinking_left_out';
    return { what, change: changes.lastNamed(number, this.changesBefore(request), cause), extra: id };
  }

  /**
   * The change for which a message is out of view. A result without its call left with the call.
   * @param {number} number
   * @param {number} code
   * @param {number} request
   */
  outBy(number, code, request) {
    const { changes, messages } = this.timeline;
    const of = code === STANDING_OMITTED ? messages.caller[number] : number;
    if (of < 0 || this.at(request)[of] < IN_VIEW_BELOW) return -1;
    return changes.tookOut(of, this.changesBefore(request));
  }

  /**
   * The first request of those without the message up to this one.
   * @param {number} number out of view at the request
   * @param {number} request
   */
  absentSince(number, request) {
    const { extras, requests } = this.timeline;
    let since = request;
    while (since > 0 && requests.last[since - 1] >= number) {
      if (this.timeline.view(since - 1).some((id) => shownNumber(extras, id) === number)) break;
      since--;
    }
    return since;
  }
}
