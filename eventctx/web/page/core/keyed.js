/** Values by key: items in groups, and values of which those used last are kept. */

/**
 * The items by a key of each, in the order in which the keys come.
 * @template T
 * @param {readonly T[]} items
 * @param {(item: T) => string} keyOf
 * @returns {Map<string, T[]>}
 */
export function grouped(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!groups.get(key)?.push(item)) groups.set(key, [item]);
  }
  return groups;
}

/** Values of which those used last are kept. @template V */
export class RecentValues {
  /** In the order of use, the oldest first. @type {Map<string | number, {value: V, size: number}>} */
  #kept = new Map();
  /** The sum of the sizes of what is kept. */
  size = 0;

  /** @param {number} most how many values are kept; where each has a size, the sum of those */
  constructor(most) {
    this.most = most;
  }

  /** @param {string | number} key */
  has(key) {
    return this.#kept.has(key);
  }

  /** @param {string | number} key @returns {V | undefined} */
  get(key) {
    const kept = this.#kept.get(key);
    if (kept === undefined) return undefined;
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    return kept.value;
  }

  /** @param {string | number} key @param {V} value @param {number} [size] @returns {V} */
  set(key, value, size = 1) {
    this.size += size - (this.#kept.get(key)?.size ?? 0);
    this.#kept.delete(key);
    this.#kept.set(key, { value, size });
    for (const [oldest, { size: room }] of this.#kept) {
      if (this.size <= this.most || oldest === key) break;
      this.#kept.delete(oldest);
      this.size -= room;
    }
    return value;
  }

  clear() {
    this.#kept.clear();
    this.size = 0;
  }
}
