/**
 * What happened to messages after they were added: runs of messages that one record changed alike.
 */

import { growColumns, lastNotAbove } from './columns.js';
import { CHANGE_COLUMNS } from './packing.js';
import { CHANGE_KINDS, STANDING_AFTER, STANDING_OMITTED, UNCHANGED } from './standing.js';

/** @import { PackedDocument } from './packing.js' */

export class ChangeTable {
  /** @type {Record<string, import('./columns.js').GrowingColumn<import('./columns.js').Numbers>>} */
  #columns = {};
  count = 0;
  position = new Int32Array(0);
  first = new Int32Array(0);
  last = new Int32Array(0);
  what = new Uint8Array(0);
  reason = new Int32Array(0);
  compaction = new Int32Array(0);
  into = new Int32Array(0);
  /** The standings after the first `#applied` changes, for messages out of view. */
  #out = new Uint8Array(0);
  #applied = 0;

  /** @param {PackedDocument} packed */
  append(packed) {
    growColumns(this.#columns, this, CHANGE_COLUMNS, packed.changes);
  }

  /** How many changes lie before a position. @param {number} position @returns {number} */
  before(position) {
    return lastNotAbove(this.position, position - 1) + 1;
  }

  /**
   * The standings of messages out of view after the first `changes` changes. The array is used
   * again by the next call.
   * @param {number} changes
   * @param {number} messages how many messages there are
   * @returns {Uint8Array}
   */
  standingsAfter(changes, messages) {
    if (this.#out.length < messages) {
      const wider = new Uint8Array(Math.max(messages, this.#out.length * 2)).fill(STANDING_OMITTED);
      wider.set(this.#out);
      this.#out = wider;
    }
    if (changes < this.#applied) {
      this.#out.fill(STANDING_OMITTED);
      this.#applied = 0;
    }
    for (; this.#applied < changes; this.#applied++) {
      const after = STANDING_AFTER[this.what[this.#applied]];
      if (after === UNCHANGED) continue;
      this.#out.fill(after, this.first[this.#applied], this.last[this.#applied] + 1);
    }
    return this.#out;
  }

  /**
   * The last of the first `changes` changes of some kinds to a message; -1 without one.
   * @param {number} message
   * @param {number} changes
   * @param {(code: number) => boolean} wanted
   * @returns {number}
   */
  lastOf(message, changes, wanted) {
    const { first, last, what } = this;
    for (let at = changes - 1; at >= 0; at--) {
      if (first[at] <= message && message <= last[at] && wanted(what[at])) return at;
    }
    return -1;
  }

  /**
   * The last of the first `changes` changes of one kind to a message; -1 without one.
   * @param {number} message
   * @param {number} changes
   * @param {string} kind
   */
  lastNamed(message, changes, kind) {
    const code = CHANGE_KINDS.indexOf(kind);
    return this.lastOf(message, changes, (one) => one === code);
  }

  /**
   * The last change that took a message out of view; -1 if none did since it was last restored.
   * @param {number} message out of view after the first `changes` changes
   * @param {number} changes
   * @returns {number}
   */
  tookOut(message, changes) {
    const at = this.lastOf(message, changes, (code) => STANDING_AFTER[code] !== UNCHANGED);
    return at >= 0 && STANDING_AFTER[this.what[at]] !== STANDING_OMITTED ? at : -1;
  }
}
