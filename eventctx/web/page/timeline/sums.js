/**
 * Tokens of every request's view by group, without its entries.
 *
 * A stack holds the runs of the last view, each with the sums of all entries up to its end. What the
 * next request does not keep is cut from the stack's end, what it adds is put there; the sums of a
 * run of messages are a difference of two running sums. So all sums of a session cost as much as its
 * runs, not as its views.
 */

import { GrowingColumn } from './columns.js';
import { LOG_GROUPS } from './groups.js';

/** @import { ExtraEntry } from './packing.js' */
/** @import { ViewTable } from './views.js' */

const GROUP_COUNT = LOG_GROUPS.length;
/** Messages are of the first six groups; the others are of entries that are no messages. */
const KIND_COUNT = 6;

export class SumTable {
  constructor() {
    /** Running sums by kind: `KIND_COUNT` values before each message, and behind the last one. */
    this.running = new GrowingColumn(new Float64Array(KIND_COUNT));
    this.running.count = KIND_COUNT;
    /** `GROUP_COUNT` sums for each request. */
    this.counted = new GrowingColumn(new Float64Array(0));
    this.runFirst = new GrowingColumn(new Int32Array(0));
    this.runLast = new GrowingColumn(new Int32Array(0));
    /** The number of entries up to the end of each run of the stack, and their sums. */
    this.runEnd = new GrowingColumn(new Int32Array(0));
    this.runSums = new GrowingColumn(new Float64Array(0));
  }

  /** How many messages are counted. */
  get messages() {
    return this.running.count / KIND_COUNT - 1;
  }

  /**
   * @param {ArrayLike<number>} kinds
   * @param {ArrayLike<number>} tokens
   */
  appendMessages(kinds, tokens) {
    const { running } = this;
    let from = running.count - KIND_COUNT;
    running.reserve(running.count + tokens.length * KIND_COUNT);
    const sums = running.space;
    for (let message = 0; message < tokens.length; message++, from += KIND_COUNT) {
      sums.copyWithin(from + KIND_COUNT, from, from + KIND_COUNT);
      sums[from + KIND_COUNT + kinds[message]] += tokens[message];
    }
    running.count = from + KIND_COUNT;
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

  /**
   * Takes the next request's view.
   * @param {ViewTable} views
   * @param {number} request
   * @param {ExtraEntry[]} extras
   */
  appendRequest(views, request, extras) {
    this.cutTo(views.keep.space[request], extras);
    views.eachAdded(request, (first, last) => this.put(first, last, extras));
    const { counted, runSums } = this;
    counted.reserve(counted.count + GROUP_COUNT);
    if (runSums.count === 0) counted.space.fill(0, counted.count, counted.count + GROUP_COUNT);
    else counted.space.set(runSums.space.subarray(runSums.count - GROUP_COUNT, runSums.count), counted.count);
    counted.count += GROUP_COUNT;
  }

  /**
   * Keeps the first `keep` entries of the stack.
   * @param {number} keep
   * @param {ExtraEntry[]} extras
   */
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

  /**
   * @param {number} first
   * @param {number} last
   * @param {ExtraEntry[]} extras
   */
  put(first, last, extras) {
    const { runFirst, runLast, runEnd, runSums, running } = this;
    const before = runEnd.count === 0 ? 0 : runEnd.space[runEnd.count - 1];
    runFirst.push(first);
    runLast.push(last);
    runEnd.push(before + (last - first) + 1);
    const at = runSums.count;
    runSums.reserve(at + GROUP_COUNT);
    const sums = runSums.space;
    if (at === 0) sums.fill(0, 0, GROUP_COUNT);
    else sums.copyWithin(at, at - GROUP_COUNT, at);
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
