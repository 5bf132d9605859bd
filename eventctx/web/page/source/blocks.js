/**
 * Bodies of messages, asked for in blocks and kept while there is room.
 *
 * A list asks for the rows in sight, one by one and again and again as it scrolls. What is asked for
 * in one go becomes one question of at most 64 bodies; what is under way is not asked for twice; the
 * bodies used last are kept.
 */

import { RecentValues } from '../core/keyed.js';
import { MOST_BODIES } from './source.js';

/** @import { BodyAddress } from './source.js' */

/** Characters of JSON: about 32 MB in memory. */
const MOST_KEPT = 16_000_000;

/** @template T what is asked for of each body, such as its message */
export class BodyBlocks {
  /**
   * @param {(addresses: string[]) => Promise<{messages: T[], size: number}>} ask answers
   *   for addresses `position.index`, in order, with the size of the answer in characters
   * @param {number} [most] how many characters are kept
   */
  constructor(ask, most = MOST_KEPT) {
    this.ask = ask;
    /** @type {RecentValues<T>} */
    this.kept = new RecentValues(most);
    /** @type {Map<string, Promise<T>>} asked for and not there yet */
    this.coming = new Map();
    /** @type {Map<string, {resolve: (body: T) => void, reject: (error: unknown) => void}>} to be asked for with the next block */
    this.waiting = new Map();
  }

  /** @param {BodyAddress[]} addresses @returns {Promise<T[]>} in the same order */
  get(addresses) {
    return Promise.all(addresses.map(({ position, index }) => this.one(`${position}.${index}`)));
  }

  /** @param {string} address @returns {Promise<T>} */
  one(address) {
    if (this.kept.has(address)) return Promise.resolve(/** @type {T} */ (this.kept.get(address)));
    const coming = this.coming.get(address);
    if (coming) return coming;
    // All rows that are drawn together ask before this runs.
    if (this.waiting.size === 0) queueMicrotask(() => this.send());
    /** @type {Promise<T>} */
    const asked = new Promise((resolve, reject) => this.waiting.set(address, { resolve, reject }));
    this.coming.set(address, asked);
    return asked;
  }

  send() {
    const wanted = [...this.waiting];
    this.waiting.clear();
    for (let start = 0; start < wanted.length; start += MOST_BODIES) {
      void this.load(wanted.slice(start, start + MOST_BODIES));
    }
  }

  /** @param {[string, {resolve: (body: T) => void, reject: (error: unknown) => void}][]} block */
  async load(block) {
    try {
      const { messages, size } = await this.ask(block.map(([address]) => address));
      block.forEach(([address, { resolve }], place) => {
        this.kept.set(address, messages[place], Math.ceil(size / block.length));
        resolve(messages[place]);
      });
    } catch (error) {
      for (const [, { reject }] of block) reject(error);
    } finally {
      // What failed is asked for again when it is wanted again.
      for (const [address] of block) this.coming.delete(address);
    }
  }
}
