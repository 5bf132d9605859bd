/**
 * The entries of every request's view.
 *
 * A view is the first `keep` entries of the view before it, and then the runs that the request adds.
 * So a jump walks back from a request, takes of each what is still needed, and ends where nothing
 * is: a view that was built anew keeps little, and an append keeps all. No view is stored.
 */

import { RecentValues } from '../core/keyed.js';
import { integerColumn } from './columns.js';

/** @import { PackedDocument } from './packing.js' */

/** Entries of the views that are kept ready: 8 MB. */
const MOST_CACHED_ENTRIES = 2_000_000;

export class ViewTable {
  constructor() {
    this.keep = integerColumn();
    this.length = integerColumn();
    this.start = integerColumn();
    this.start.push(0);
    this.runs = integerColumn();
    /** @type {RecentValues<Int32Array>} */
    this.cached = new RecentValues(MOST_CACHED_ENTRIES);
  }

  /** @param {PackedDocument} packed */
  append(packed) {
    const { addStart, addRuns } = packed;
    const before = this.runs.count;
    const keep = /** @type {Int32Array} */ (packed.requests.keep);
    this.keep.append(keep);
    this.runs.append(addRuns);
    this.start.append(addStart.subarray(1).map((place) => place + before));
    let kept = this.length.count === 0 ? 0 : this.length.space[this.length.count - 1];
    for (let request = 0; request < keep.length; request++) {
      let length = keep[request];
      if (!(length >= 0 && length <= kept)) {
        throw new Error(`timeline: expected to keep at most ${kept} entries, found ${length}`);
      }
      for (let at = addStart[request]; at < addStart[request + 1]; at += 2) {
        length += addRuns[at + 1] - addRuns[at] + 1;
      }
      this.length.push(length);
      kept = length;
    }
  }

  /**
   * The entry ids of a request's view, in order. The array is shared: do not write to it.
   * @param {number} request
   * @returns {Int32Array}
   */
  of(request) {
    if (!(request >= 0 && request < this.length.count)) return new Int32Array(0);
    const known = this.cached.get(request);
    if (known) return known;
    const made = this.derive(request);
    return this.cached.set(request, made, made.length);
  }

  /** @param {number} request @returns {Int32Array} */
  derive(request) {
    const keep = this.keep.space;
    const view = new Int32Array(this.length.space[request]);
    let need = view.length;
    for (let at = request; need > 0; at--) {
      const known = at === request ? undefined : this.cached.get(at);
      if (known) {
        view.set(known.subarray(0, need));
        break;
      }
      if (keep[at] < need) this.writeAdded(at, view, need);
      need = Math.min(need, keep[at]);
    }
    return view;
  }

  /**
   * Writes what a request adds to its place in a view, up to before place `end`.
   * @param {number} request
   * @param {Int32Array} view
   * @param {number} end
   */
  writeAdded(request, view, end) {
    const runs = this.runs.space;
    let place = this.keep.space[request];
    for (let at = this.start.space[request]; at < this.start.space[request + 1]; at += 2) {
      for (let id = runs[at]; id <= runs[at + 1]; id++) {
        if (place === end) return;
        view[place++] = id;
      }
    }
  }

  /**
   * Calls `each` with every run of ids that a request adds after what it keeps.
   * @param {number} request
   * @param {(first: number, last: number) => void} each
   */
  eachAdded(request, each) {
    const runs = this.runs.space;
    for (let at = this.start.space[request]; at < this.start.space[request + 1]; at += 2) {
      each(runs[at], runs[at + 1]);
    }
  }
}
