/**
 * Heights of many rows, and where each begins: estimated first, measured later.
 *
 * A Fenwick tree holds sums of heights, so that a change of one of 100,000 rows, the place of a
 * row, and the row at a place take a logarithm of steps each.
 */

export class RowHeights {
  /** How many rows there are. */
  count = 0;
  /** @type {Float64Array} */
  #heights = new Float64Array(0);
  /** From 1: the sum of the heights that end at this row, as many as its lowest bit says. @type {Float64Array} */
  #sums = new Float64Array(1);

  /**
   * Adds rows after the others.
   * @param {number} count how many there are then
   * @param {(row: number) => number} estimate
   */
  grow(count, estimate) {
    if (count > this.#heights.length) this.#reserve(count);
    for (let row = this.count; row < count; row++) {
      const height = estimate(row);
      this.#heights[row] = height;
      const at = row + 1;
      let sum = height;
      for (let part = row; part > at - lowestBit(at); part -= lowestBit(part)) {
        sum += this.#sums[part] ?? 0;
      }
      this.#sums[at] = sum;
    }
    this.count = Math.max(this.count, count);
  }

  /** @param {number} row */
  height(row) {
    return this.#heights[row] ?? 0;
  }

  /** @param {number} row @param {number} height */
  set(row, height) {
    const change = height - this.height(row);
    if (change === 0) return;
    this.#heights[row] = height;
    for (let at = row + 1; at <= this.count; at += lowestBit(at)) {
      this.#sums[at] = (this.#sums[at] ?? 0) + change;
    }
  }

  /** Where a row begins: the sum of the heights before it. @param {number} row */
  before(row) {
    let sum = 0;
    for (let at = Math.min(row, this.count); at > 0; at -= lowestBit(at)) {
      sum += this.#sums[at] ?? 0;
    }
    return sum;
  }

  get total() {
    return this.before(this.count);
  }

  /** The row at a place: the first or the last one outside. @param {number} place */
  at(place) {
    let row = 0;
    let left = place;
    let step = 1;
    while (step * 2 <= this.count) step *= 2;
    for (; step >= 1; step /= 2) {
      const next = row + step;
      const sum = this.#sums[next] ?? 0;
      if (next <= this.count && sum <= left) {
        row = next;
        left -= sum;
      }
    }
    return Math.max(0, Math.min(row, this.count - 1));
  }

  /** @param {number} count */
  #reserve(count) {
    const room = Math.max(count, this.#heights.length * 2, 64);
    const heights = new Float64Array(room);
    heights.set(this.#heights);
    this.#heights = heights;
    const sums = new Float64Array(room + 1);
    sums.set(this.#sums);
    this.#sums = sums;
  }
}

/** @param {number} number */
function lowestBit(number) {
  return number & -number;
}
