/**
 * Columns of numbers that grow at their end.
 *
 * A session has up to a hundred thousand messages; an object for each would take the page's memory
 * and make a jump wait for the garbage collector. A column doubles its space when it is full, so
 * that a live session appends at a constant price.
 */

/** @typedef {Int8Array | Uint8Array | Int32Array | Float64Array} Numbers */

/** @template {Numbers} T */
export class GrowingColumn {
  /** @param {T} empty an array of the column's type */
  constructor(empty) {
    /** @type {T} */
    this.space = empty;
    this.count = 0;
  }

  /** The values so far. The array is replaced as the column grows, so ask for it again after that. @returns {T} */
  get values() {
    return /** @type {T} */ (this.space.subarray(0, this.count));
  }

  /** @param {ArrayLike<number>} values */
  append(values) {
    this.reserve(this.count + values.length);
    this.space.set(values, this.count);
    this.count += values.length;
  }

  /** @param {number} value */
  push(value) {
    this.reserve(this.count + 1);
    this.space[this.count++] = value;
  }

  /** @param {number} length */
  reserve(length) {
    if (length <= this.space.length) return;
    const Kind = /** @type {new (length: number) => T} */ (this.space.constructor);
    const wider = new Kind(Math.max(length, this.space.length * 2, 64));
    wider.set(this.space.subarray(0, this.count));
    this.space = wider;
  }
}

/** @returns {GrowingColumn<Int32Array>} */
export function integerColumn() {
  return new GrowingColumn(new Int32Array(0));
}

/** @returns {GrowingColumn<Float64Array>} */
export function floatColumn() {
  return new GrowingColumn(new Float64Array(0));
}

/**
 * A column that takes an array as its first values, without a copy.
 * @template {Numbers} T
 * @param {T} values
 * @returns {GrowingColumn<T>}
 */
export function columnOf(values) {
  const column = new GrowingColumn(values);
  column.count = values.length;
  return column;
}

/**
 * Appends to every column of a table, and gives the table their values.
 * @param {Record<string, GrowingColumn<Numbers>>} columns
 * @param {{count: number}} table
 * @param {Readonly<Record<string, unknown>>} names
 * @param {Readonly<Record<string, Numbers>>} values
 */
export function growColumns(columns, table, names, values) {
  for (const name of Object.keys(names)) {
    if (columns[name] === undefined) columns[name] = columnOf(values[name]);
    else columns[name].append(values[name]);
    table.count = columns[name].count;
    /** @type {any} */ (table)[name] = columns[name].values;
  }
}

/**
 * The place of the last value that is not greater than `limit`, in a column in rising order; -1 if
 * all are greater.
 * @param {ArrayLike<number>} values
 * @param {number} limit
 * @returns {number}
 */
export function lastNotAbove(values, limit) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
