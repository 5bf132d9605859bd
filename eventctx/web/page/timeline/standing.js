/**
 * What stands for a message in a request: whether it is in view, and what took it out if not.
 *
 * The words are those of `eventctx why`. A message that is not in view was taken out by the last
 * change to it; without one it is a result that answers no call in view, and was left out for that.
 */

import { GrowingColumn, lastNotAbove } from './columns.js';

/** @import { PackedDocument } from './packing.js' */

/** The standings in the order of their codes. */
export const STANDINGS = Object.freeze([
  'whole',
  'shortened',
  'summarised',
  'dropped',
  'merged',
  'omitted',
  'replaced',
  'set',
  'cleared',
  'not_added',
]);

export const IN_VIEW_BELOW = 2;
export const STANDING_WHOLE = 0;
export const STANDING_SHORTENED = 1;
export const STANDING_OMITTED = STANDINGS.indexOf('omitted');
export const STANDING_NOT_ADDED = STANDINGS.indexOf('not_added');

const UNCHANGED = 255;

/** Kinds of change in the order of their codes. */
export const CHANGE_KINDS = Object.freeze([
  'shortened',
  'thinking_left_out',
  'summarised',
  'dropped',
  'merged',
  'replaced',
  'restored',
  'set',
  'cleared',
  'pinned',
  'unpinned',
  'erased',
]);

/**
 * The standing that a kind of change leaves a message with while it is out of view. Who was restored
 * and still is not there was left out as a result without its call. `UNCHANGED`: it says nothing.
 */
const STANDING_AFTER = CHANGE_KINDS.map((kind) => {
  if (kind === 'restored') return STANDING_OMITTED;
  const standing = STANDINGS.indexOf(kind);
  return standing >= IN_VIEW_BELOW ? standing : UNCHANGED;
});

export class ChangeTable {
  constructor() {
    this.position = new GrowingColumn(new Int32Array(0));
    this.first = new GrowingColumn(new Int32Array(0));
    this.last = new GrowingColumn(new Int32Array(0));
    this.what = new GrowingColumn(new Uint8Array(0));
    this.reason = new GrowingColumn(new Int32Array(0));
    this.compaction = new GrowingColumn(new Int32Array(0));
    this.into = new GrowingColumn(new Int32Array(0));
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

  /**
   * How many changes lie before a position.
   * @param {number} position
   * @returns {number}
   */
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
   * The change that took a message out of view, and its standing since.
   * @param {number} message out of view after the first `changes` changes
   * @param {number} changes
   * @returns {{standing: number, change: number}}
   */
  tookOut(message, changes) {
    const at = this.lastOf(message, changes, (code) => STANDING_AFTER[code] !== UNCHANGED);
    const standing = at < 0 ? STANDING_OMITTED : STANDING_AFTER[this.what.space[at]];
    return { standing, change: standing === STANDING_OMITTED ? -1 : at };
  }

  /**
   * The first change by which a message is out of view now: of those since it was last restored.
   * @param {number} message
   * @param {number} changes
   * @returns {number} -1 without one
   */
  fellBy(message, changes) {
    let found = -1;
    for (let at = changes - 1; at >= 0; at--) {
      if (this.first.space[at] > message || this.last.space[at] < message) continue;
      const after = STANDING_AFTER[this.what.space[at]];
      if (after === STANDING_OMITTED) break;
      if (after !== UNCHANGED) found = at;
    }
    return found;
  }
}
