/** The river's numbers, made when they are first shown, and kept until the timeline grows. */

import { BAND_NAMES } from './request-words.js';
import { sessions, source } from '../core/state.js';
import { countText } from '../parts/numbers.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

const BANDS = BAND_NAMES.length;
/** Requests between two places where the work may be put aside. */
const REQUESTS_AT_ONCE = 32;

export class RiverRows {
  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.version = timeline.version.peek();
    this.bands = new Float64Array(0);
    this.filled = new Uint8Array(0);
  }

  /** Forgets what may read otherwise since the timeline grew. */
  refresh() {
    const { timeline } = this;
    const now = timeline.version.peek();
    if (this.version === now && this.filled.length >= timeline.requests.count) return;
    this.version = now;
    // A report that comes late changes requests of before, so all of them are asked for again.
    const room = Math.ceil(timeline.requests.count * 1.25) + 64;
    if (this.filled.length < timeline.requests.count) {
      this.bands = new Float64Array(room * BANDS);
      this.filled = new Uint8Array(room);
    } else {
      this.filled.fill(0);
    }
  }

  /** @param {number} first @param {number} last */
  has(first, last) {
    this.refresh();
    for (let request = first; request <= last; request += 1) {
      if (this.filled[request] !== 1) return false;
    }
    return true;
  }

  /** @param {number} request @returns {Float64Array} tokens in the order of `BAND_NAMES` */
  of(request) {
    if (this.filled[request] !== 1) this.fillRun(request, request);
    return this.bands.subarray(request * BANDS, (request + 1) * BANDS);
  }

  /**
   * Makes what is missing between two requests; yields where it may be put aside.
   * @param {number} first
   * @param {number} last
   * @returns {Generator<void, void, void>}
   */
  *fill(first, last) {
    this.refresh();
    for (let request = first; request <= last; request += 1) {
      if (this.filled[request] === 1) continue;
      let end = request;
      const most = Math.min(last, request + REQUESTS_AT_ONCE - 1);
      while (end < most && this.filled[end + 1] !== 1) end += 1;
      this.fillRun(request, end);
      request = end;
      yield;
    }
  }

  /** @param {number} first @param {number} last */
  fillRun(first, last) {
    const { beside } = this.timeline.requests;
    for (let request = first; request <= last; request += 1) {
      this.bands[request * BANDS] = Math.max(0, beside[request] ?? 0);
      this.bands.set(this.timeline.sums(request), request * BANDS + 1);
      this.filled[request] = 1;
    }
  }
}

/** What a request cost, from the bottom of a stack to its top: the engine's `audit` at list prices, each with its name in the answer. */
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
