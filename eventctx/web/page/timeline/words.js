/**
 * A person's words that a request does not show, each with what took it out and since when.
 *
 * They are few among all messages, and asked for at every step of the cursor. So their numbers are
 * kept, each with the changes to it.
 */

import { integerColumn, lastNotAbove } from './columns.js';
import { HUMAN_KIND } from './groups.js';
import {
  IN_VIEW_BELOW,
  STANDING_AFTER,
  STANDING_NOT_ADDED,
  STANDING_OMITTED,
  STANDINGS,
  UNCHANGED,
} from './standing.js';

/** @import { ChangeTable } from './changes.js' */
/** @import { Timeline } from './timeline.js' */

/**
 * `change` and `compaction` are places in the timeline's lists, -1 without one; `fell` is the first
 * request of those without it up to this one.
 * @typedef {{
 *   number: number, standing: string, change: number, compaction: number, fell: number,
 * }} WordsOut
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
