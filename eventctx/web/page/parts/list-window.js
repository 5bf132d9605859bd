/**
 * Which rows of a long list are in sight, and how far it is scrolled: numbers only.
 *
 * The list remembers an *anchor*: a row, and where it stands. When a row above turns out higher
 * than estimated, or the list grows, the anchor goes back to where it stood, so nothing jumps.
 * Browsers cannot scroll very high elements. There the scroll bar stands for more than its own
 * height; moves of up to two screens stay exact.
 */

/** @typedef {import('./virtual-list.js').Rows} Rows */
/** @typedef {import('./virtual-list.js').Edge} Edge */

/** The row's start, middle or end is `offset` from that of what is in sight. @typedef {{row: number, edge: Edge, offset: number}} Anchor */

/** Browsers end near 33 million pixels of the screen; a zoomed page has several to one of ours. */
export const MOST_SCROLL_HEIGHT = 8_000_000;

/** So much beyond what is in sight is in the page, so that scrolling meets rows, not gaps. */
const OVERSCAN = 300;

const MOST_HEIGHTS = 50_000;

export class ListWindow {
  heights = new RowHeights();
  /** Height of what is in sight: 0 while the list is not shown. */
  sight = 0;
  /** Where what is in sight begins, among all rows. */
  top = 0;
  /** @type {Anchor} */
  anchor = { row: 0, edge: 'start', offset: 0 };
  #width = 0;
  /** Measured heights by key. @type {Map<string | number, number>} */
  #remembered = new Map();

  /** Takes other rows; the anchor stays at its place in them. @param {Rows} rows */
  reset(rows) {
    this.heights = new RowHeights();
    this.grow(rows);
    const row = Math.max(0, Math.min(this.anchor.row, rows.count - 1));
    if (row !== this.anchor.row) this.anchor = { row, edge: 'end', offset: 0 };
  }

  /** Takes rows that were added behind the others. @param {Rows} rows */
  grow(rows) {
    const known = this.#remembered;
    this.heights.grow(
      rows.count,
      known.size === 0 ? rows.height : (row) => known.get(rows.key(row)) ?? rows.height(row),
    );
  }

  /** @param {number} width @param {number} height */
  resize(width, height) {
    // Text breaks elsewhere now; what is in the page is measured again by itself.
    if (width !== this.#width) this.#remembered.clear();
    this.#width = width;
    this.sight = height;
  }

  /**
   * @param {number} row
   * @param {string | number} key
   * @param {number} height
   * @returns {boolean} whether it is another height than was thought
   */
  measured(row, key, height) {
    if (this.#remembered.size > MOST_HEIGHTS) this.#remembered.clear();
    this.#remembered.set(key, height);
    const differs = Math.abs(this.heights.height(row) - height) > 0.01;
    if (differs) this.heights.set(row, height);
    return differs;
  }

  /**
   * Makes a row the anchor, so that the next `settleAtAnchor` brings it into sight.
   * @param {number} row
   * @param {Edge | 'nearest'} edge
   */
  aimAt(row, edge) {
    let to = edge;
    if (to === 'nearest') {
      const start = this.heights.before(row);
      const end = start + this.heights.height(row);
      const beginsBefore = start < this.top;
      const endsBehind = end > this.top + this.sight;
      if (beginsBefore === endsBehind) return; // all of it is in sight, or nothing but it
      to = beginsBefore || end - start > this.sight ? 'start' : 'end';
    }
    this.anchor = { row, edge: to, offset: 0 };
  }

  settleAtAnchor() {
    const { row, edge, offset } = this.anchor;
    const share = edge === 'start' ? 0 : edge === 'center' ? 0.5 : 1;
    const free = this.heights.height(row) - this.sight;
    this.#moveTo(this.heights.before(row) + free * share + offset);
  }

  /** The person scrolled. @param {number} to @param {number} by */
  scrolled(to, by) {
    const isShort = Math.abs(by) < 2 * this.sight;
    const atEnd = to <= 0 || to >= this.scrollHeight - this.sight - 1;
    this.#moveTo(this.scale > 1 && isShort && !atEnd ? this.top + by : to * this.scale);
    const row = this.heights.at(this.top);
    this.anchor = { row, edge: 'start', offset: this.top - this.heights.before(row) };
  }

  /** How many rows' pixels one pixel of the scroll bar stands for. */
  get scale() {
    const scrollable = this.scrollHeight - this.sight;
    return scrollable > 0 ? this.#lowest / scrollable : 1;
  }

  get scrollHeight() {
    return Math.min(this.heights.total, MOST_SCROLL_HEIGHT);
  }

  get scrollTop() {
    return this.top / this.scale;
  }

  /** @returns {[first: number, last: number]} */
  rowsToShow() {
    return this.rowsWithin(OVERSCAN);
  }

  /** @param {number} beyond pixels more on both sides @returns {[first: number, last: number]} */
  rowsWithin(beyond) {
    if (this.heights.count === 0) return [0, -1];
    const end = this.top + Math.max(0, this.sight - 1) + beyond;
    return [this.heights.at(Math.max(0, this.top - beyond)), this.heights.at(end)];
  }

  /**
   * Where a key leads from a row: null if it is not a key of lists.
   * @param {string} key
   * @param {number} from
   * @returns {number | null}
   */
  rowAfterKey(key, from) {
    const start = this.heights.before(from);
    if (key === 'ArrowDown' || key === 'j') return from + 1;
    if (key === 'ArrowUp' || key === 'k') return from - 1;
    if (key === 'PageDown') return Math.max(from + 1, this.heights.at(start + this.sight));
    if (key === 'PageUp') return Math.min(from - 1, this.heights.at(start - this.sight));
    if (key === 'Home') return 0;
    return key === 'End' ? this.heights.count - 1 : null;
  }

  get #lowest() {
    return Math.max(0, this.heights.total - this.sight);
  }

  /** @param {number} top */
  #moveTo(top) {
    this.top = Math.max(0, Math.min(top, this.#lowest));
  }
}

/**
 * Heights of many rows, and where each begins: estimated first, measured later. A Fenwick tree holds
 * sums of heights, so that a change of one of 100,000 rows, the place of a row, and the row at a place
 * take a logarithm of steps each.
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
