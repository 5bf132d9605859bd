/**
 * Tokens of every request's view by group, without its entries.
 *
 * A stack holds the runs of the last view, each with the sums of all entries up to its end. What the
 * next request does not keep is cut from the stack's end, what it adds is put there; the sums of a
 * run of messages are a difference of two running sums. So all sums of a session cost as much as its
 * runs, not as its views. The worker makes those of a whole document.
 */

import { columnOf, floatColumn, integerColumn } from './columns.js';
import { LOG_GROUPS } from './groups.js';

/** @import { ExtraEntry, Recount } from './packing.js' */
/** @import { Numbers } from './columns.js' */
/** @import { ViewTable } from './views.js' */

const GROUP_COUNT = LOG_GROUPS.length;
const SUM_COLUMNS = /** @type {const} */ (['running', 'counted', 'runFirst', 'runLast', 'runEnd', 'runSums']);
/** @typedef {Record<typeof SUM_COLUMNS[number], Numbers>} PackedSums */

/** Messages are of the first six groups; the others are of entries that are no messages. */
const KIND_COUNT = 6;

export class SumTable {
  constructor() {
    /** Running sums by kind: `KIND_COUNT` values before each message, and after the last one. */
    this.running = floatColumn();
    this.running.append(new Float64Array(KIND_COUNT));
    /** `GROUP_COUNT` sums for each request. */
    this.counted = floatColumn();
    this.runFirst = integerColumn();
    this.runLast = integerColumn();
    /** The number of entries up to the end of each run of the stack, and their sums. */
    this.runEnd = integerColumn();
    this.runSums = floatColumn();
  }

  /** @param {PackedSums} packed @returns {SumTable} */
  static from(packed) {
    const table = new SumTable();
    for (const name of SUM_COLUMNS) /** @type {any} */ (table)[name] = columnOf(packed[name]);
    return table;
  }

  /** @returns {PackedSums} */
  packed() {
    return /** @type {PackedSums} */ (Object.fromEntries(SUM_COLUMNS.map((name) => [name, this[name].values])));
  }

  /** How many messages are counted. */
  get messages() {
    return this.running.count / KIND_COUNT - 1;
  }

  /** How many requests are counted. */
  get requests() {
    return this.counted.count / GROUP_COUNT;
  }

  /**
   * Counts what is not counted yet.
   * @param {ViewTable} views of all requests
   * @param {Numbers} kinds of all messages
   * @param {Numbers} tokens of all messages, as they were added
   * @param {ExtraEntry[]} extras all of them
   * @param {Recount[]} recounts new ones, in order
   */
  append(views, kinds, tokens, extras, recounts) {
    this.appendMessages(kinds.subarray(this.messages), tokens.subarray(this.messages));
    let next = 0;
    for (let request = this.requests; ; request++) {
      for (; next < recounts.length && recounts[next].from <= request; next++) {
        const again = tokens.slice();
        again.set(recounts[next].tokens);
        this.recount(kinds, again, extras);
      }
      if (request === views.keep.count) return;
      this.appendRequest(views, request, extras);
    }
  }

  /** @param {ArrayLike<number>} kinds @param {ArrayLike<number>} tokens */
  appendMessages(kinds, tokens) {
    const { running } = this;
    let at = running.count;
    running.reserve(at + tokens.length * KIND_COUNT);
    const sums = running.space;
    // Written out: a call for six numbers costs more than the numbers.
    for (let message = 0; message < tokens.length; message++) {
      const own = at + kinds[message];
      for (const end = at + KIND_COUNT; at < end; at++) sums[at] = sums[at - KIND_COUNT];
      sums[own] += tokens[message];
    }
    running.count = at;
  }

  /**
   * Counts all messages anew: another model's estimator counts from here on.
   * @param {ArrayLike<number>} kinds
   * @param {ArrayLike<number>} tokens
   * @param {ExtraEntry[]} extras
   */
  recount(kinds, tokens, extras) {
    this.running.count = KIND_COUNT;
    this.appendMessages(kinds, tokens);
    const firsts = this.runFirst.values.slice();
    const lasts = this.runLast.values.slice();
    this.cutTo(0, extras);
    firsts.forEach((first, run) => this.put(first, lasts[run], extras));
  }

  /** Takes the next request's view. @param {ViewTable} views @param {number} request @param {ExtraEntry[]} extras */
  appendRequest(views, request, extras) {
    this.cutTo(views.keep.space[request], extras);
    views.eachAdded(request, (first, last) => this.put(first, last, extras));
    const { counted, runSums } = this;
    counted.reserve(counted.count + GROUP_COUNT);
    const top = runSums.count - GROUP_COUNT;
    for (let group = 0; group < GROUP_COUNT; group++) {
      counted.space[counted.count++] = top < 0 ? 0 : runSums.space[top + group];
    }
  }

  /** Keeps the first `keep` entries of the stack. @param {number} keep @param {ExtraEntry[]} extras */
  cutTo(keep, extras) {
    const { runFirst, runLast, runEnd } = this;
    let depth = runEnd.count;
    while (depth > 0 && runEnd.space[depth - 1] > keep) depth--;
    const whole = depth === 0 ? 0 : runEnd.space[depth - 1];
    const cut = keep > whole ? runFirst.space[depth] : null;
    runFirst.count = runLast.count = runEnd.count = depth;
    this.runSums.count = depth * GROUP_COUNT;
    // The cut went through a run of messages: its first ones stay.
    if (cut !== null) this.put(cut, cut + (keep - whole) - 1, extras);
  }

  /** @param {number} first @param {number} last @param {ExtraEntry[]} extras */
  put(first, last, extras) {
    const { runFirst, runLast, runEnd, runSums, running } = this;
    const before = runEnd.count === 0 ? 0 : runEnd.space[runEnd.count - 1];
    runFirst.push(first);
    runLast.push(last);
    runEnd.push(before + (last - first) + 1);
    const at = runSums.count;
    runSums.reserve(at + GROUP_COUNT);
    const sums = runSums.space;
    for (let group = 0; group < GROUP_COUNT; group++) {
      sums[at + group] = at === 0 ? 0 : sums[at + group - GROUP_COUNT];
    }
    if (first < 0) {
      const extra = extras[-first - 1];
      sums[at + extra.group] += extra.tokens;
    } else {
      const start = first * KIND_COUNT;
      const end = (last + 1) * KIND_COUNT;
      for (let kind = 0; kind < KIND_COUNT; kind++) {
        sums[at + kind] += running.space[end + kind] - running.space[start + kind];
      }
    }
    runSums.count = at + GROUP_COUNT;
  }

  /**
   * The estimator's own sums of a request's view, by group of the log.
   * @param {number} request
   * @returns {Float64Array}
   */
  of(request) {
    return this.counted.space.subarray(request * GROUP_COUNT, (request + 1) * GROUP_COUNT);
  }
}

/**
 * Writes `tokens`, shared out in proportion to `counted`, to `into`; the shares add up to `tokens`.
 * A share ends where the whole of the groups up to it ends, rounded down, so no remainder is left.
 * @param {ArrayLike<number>} counted
 * @param {number} tokens
 * @param {Int32Array} into
 */
export function shareOut(counted, tokens, into) {
  let whole = 0;
  for (let group = 0; group < counted.length; group++) whole += counted[group];
  let before = 0;
  let upTo = 0;
  for (let group = 0; group < counted.length; group++) {
    upTo += counted[group];
    const share = whole > 0 ? Math.floor((tokens * upTo) / whole) : 0;
    into[group] = share - before;
    before = share;
  }
}
