/**
 * What happened to messages after they were added: runs of messages that one record changed alike.
 */

import { byteColumn, integerColumn, lastNotAbove } from './columns.js';
import { CHANGE_KINDS, STANDING_AFTER, STANDING_OMITTED, UNCHANGED } from './standing.js';

/** @import { PackedDocument } from './packing.js' */

export class ChangeTable {
  constructor() {
    this.position = integerColumn();
    this.first = integerColumn();
    this.last = integerColumn();
    this.what = byteColumn();
    this.reason = integerColumn();
    this.compaction = integerColumn();
    this.into = integerColumn();
    /** The standings after the first `applied` changes, for messages out of view. */
    this.out = new Uint8Array(0);
    this.applied = 0;
  }

  get count() {
    return this.position.count;
  }

  /** @param {PackedDocument} packed */
  append(packed) {
    const { changes } = packed;
    this.position.append(changes.position);
    this.first.append(changes.first);
    this.last.append(changes.last);
    this.what.append(changes.what);
    this.reason.append(changes.reason);
    this.compaction.append(changes.compaction);
    this.into.append(changes.into);
  }

  /** How many changes lie before a position. @param {number} position @returns {number} */
  before(position) {
    return lastNotAbove(this.position.values, position - 1) + 1;
  }

  /**
   * The standings of messages out of view after the first `changes` changes. The array is used
   * again by the next call.
   * @param {number} changes
   * @param {number} messages how many messages there are
   * @returns {Uint8Array}
   */
  standingsAfter(changes, messages) {
    if (this.out.length < messages) {
      const wider = new Uint8Array(Math.max(messages, this.out.length * 2)).fill(STANDING_OMITTED);
      wider.set(this.out);
      this.out = wider;
    }
    if (changes < this.applied) {
      this.out.fill(STANDING_OMITTED);
      this.applied = 0;
    }
    for (; this.applied < changes; this.applied++) {
      const after = STANDING_AFTER[this.what.space[this.applied]];
      if (after === UNCHANGED) continue;
      this.out.fill(after, this.first.space[this.applied], this.last.space[this.applied] + 1);
    }
    return this.out;
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
      if (first.space[at] <= message && message <= last.space[at] && wanted(what.space[at])) return at;
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
    return at >= 0 && STANDING_AFTER[this.what.space[at]] !== STANDING_OMITTED ? at : -1;
  }
}
