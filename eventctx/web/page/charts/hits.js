/** What the search found, as ticks on the charts. */

import { signal } from '../core/signals.js';

/**
 * Indexes of requests, ascending: where each hit stood first in view, or was added.
 * @type {import('../core/signals.js').Signal<readonly number[]>}
 */
export const hits = signal(/** @type {readonly number[]} */ ([]));
