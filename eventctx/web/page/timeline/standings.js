/**
 * The standing of every message at a request: of the view, and of the changes before it; and a
 * person's words that it does not show, each with what took it out and since when.
 */

import { RecentValues } from '../core/keyed.js';
import { shownAs, shownNumber } from './entries.js';
import {
  IN_VIEW_BELOW, STANDING_NOT_ADDED, STANDING_OMITTED, STANDINGS, STANDING_AFTER, UNCHANGED,
} from './standing.js';
import { integerColumn, lastNotAbove } from './columns.js';
import { HUMAN_KIND } from './groups.js';

/** @import { Timeline } from './timeline.js' */
/** @import { ChangeTable } from './changes.js' */

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

/**
 * `change` and `compaction` are places in the timeline's lists, -1 without one; `fell` is the first
 * request of those without it up to this one.
 * @typedef {{
 *   number: number, standing: string, change: number, compaction: number, fell: number,
 * }} WordsOut
 */

/**
 * A person's words that a request does not show. They are few among all messages, and asked for at
 * every step of the cursor. So their numbers are kept, each with the changes to it.
 */
export class WordsTable {
  constructor() {
    /** Numbers of a person's messages. */
    this.numbers = integerColumn();
    this.messages = 0;
    /** @type {number[][]} for each the changes that took it out or brought it back, in order */
    this.changes = [];
    this.seen = 0;
  }

  /** @param {ArrayLike<number>} kinds of all messages @param {ChangeTable} table */
  append(kinds, table) {
    for (; this.messages < kinds.length; this.messages++) {
      if (kinds[this.messages] !== HUMAN_KIND) continue;
      this.numbers.push(this.messages);
      this.changes.push([]);
    }
    for (; this.seen < table.count; this.seen++) {
      if (STANDING_AFTER[table.what[this.seen]] === UNCHANGED) continue;
      this.note(table.first[this.seen], table.last[this.seen]);
    }
  }

  /** @param {number} first @param {number} last */
  note(first, last) {
    const numbers = this.numbers.values;
    let at = lastNotAbove(numbers, first - 1) + 1;
    for (; at < numbers.length && numbers[at] <= last; at++) this.changes[at].push(this.seen);
  }

  /** @param {Timeline} timeline @param {number} request @returns {WordsOut[]} */
  outOf(timeline, request) {
    const { changes, requests } = timeline;
    const standings = timeline.standings(request);
    const before = changes.before(requests.position[request]);
    /** @type {WordsOut[]} */
    const found = [];
    this.numbers.values.forEach((number, place) => {
      const standing = standings[number];
      if (standing < IN_VIEW_BELOW || standing === STANDING_NOT_ADDED) return;
      const { first, last } = this.fellBy(place, before, changes);
      found.push({
        number,
        standing: STANDINGS[standing],
        change: last,
        compaction: last < 0 ? -1 : changes.compaction[last],
        fell:
          first < 0
            ? timeline.standingTable.absentSince(number, request)
            : timeline.requestAt(changes.position[first]) + 1,
      });
    });
    return found;
  }

  /**
   * The first and the last change by which a message is out of view: of those since it was restored.
   * Both are -1 where none took it out: then it was left out with its call.
   * @param {number} place
   * @param {number} before only changes before this one
   * @param {ChangeTable} table
   */
  fellBy(place, before, table) {
    let first = -1;
    let last = -1;
    const changes = this.changes[place];
    for (let at = changes.length - 1; at >= 0; at--) {
      const change = changes[at];
      if (change >= before) continue;
      if (STANDING_AFTER[table.what[change]] === STANDING_OMITTED) break;
      first = change;
      if (last < 0) last = change;
    }
    return { first, last };
  }
}
