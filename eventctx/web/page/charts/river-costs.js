/** What each request cost, for the river: the engine's `audit` at list prices. */

import { sessions, source } from '../core/state.js';
import { countText } from '../parts/numbers.js';
import { BAND_NAMES } from './request-words.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/** From the bottom of a stack to its top, each with its name in the answer. */
export const COST_BANDS = /** @type {const} */ ([
  ['read from cache', 'cache_read'], ['written to cache', 'cache_write'], ['other input', 'input'], ['output', 'output'],
]);

/** A chart's scale has whole steps: costs are in millionths of a dollar. */
export const MICRO = 1e6;

/** Whether any call of the session has a price. @param {Timeline} timeline */
export function hasPrices(timeline) {
  return source.can.answers && sessions.value?.find((row) => row.session === timeline.session)?.cost != null;
}

/** Rows like those of tokens, which are all there from the beginning. */
export class CostRows {
  /**
   * @param {Timeline} timeline
   * @param {Map<number, Record<string, number> | null>} costs by position of the request
   * @param {Map<number, number | null>} outputs tokens of the answers, by the same
   */
  constructor(timeline, costs, outputs) {
    this.timeline = timeline;
    this.outputs = outputs;
    this.bands = Array.from({ length: timeline.requests.count }, (_, request) => {
      const cost = costs.get(timeline.requests.position[request] ?? -1);
      return BAND_NAMES.map((__, band) => (cost?.[COST_BANDS[band]?.[1] ?? ''] ?? 0) * MICRO);
    });
  }

  refresh() {}

  has() {
    return true;
  }

  /** @param {number} request @returns {ArrayLike<number>} in the order of `COST_BANDS` */
  of(request) {
    return this.bands[request] ?? [];
  }

  /** `812 output tokens`, or '' where nobody counted them. @param {number} request */
  answered(request) {
    const output = this.outputs.get(this.timeline.requests.position[request] ?? -1) ?? null;
    return output === null ? '' : ` · ${countText(output)} output tokens`;
  }

  /** @param {number} request */
  sum(request) {
    return this.bands[request]?.reduce((sum, one) => sum + one, 0) ?? 0;
  }

  /** The most that a request of the window cost. @param {readonly [number, number]} window */
  top([first, last]) {
    let most = 1;
    for (let request = first; request <= last; request += 1) most = Math.max(most, this.sum(request));
    return most * 1.04;
  }
}

/** @param {Timeline} timeline @returns {Promise<CostRows>} */
export async function readCosts(timeline) {
  const { requests } = await source.answer(timeline.session, 'audit');
  /** @param {'cost' | 'output'} key */
  const byPosition = (key) => new Map(requests.map((/** @type {any} */ one) => [one.position, one[key] ?? null]));
  return new CostRows(timeline, byPosition('cost'), byPosition('output'));
}
