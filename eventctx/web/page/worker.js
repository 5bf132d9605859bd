/**
 * The page's worker: fetches timelines, sums them up, and hands over their columns as typed arrays.
 *
 * No page module imports this file; the server sends it to the worker alone.
 */

import { fetchPacked } from './source/decoding.js';
import { packedBuffers, withSums } from './timeline/packing.js';

/** @typedef {{postMessage(message: unknown, transfer?: ArrayBuffer[]): void}} ThePage */

addEventListener('message', async (event) => {
  const thePage = /** @type {ThePage} */ (/** @type {unknown} */ (globalThis));
  const { id, address } = event.data;
  try {
    const packed = withSums(await fetchPacked(address));
    thePage.postMessage({ id, packed }, packedBuffers(packed));
  } catch (error) {
    thePage.postMessage({ id, error: error instanceof Error ? error.message : String(error) });
  }
});
