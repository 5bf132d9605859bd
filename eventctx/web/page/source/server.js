/**
 * The server as the page's source: `eventctx inspect` on this machine.
 */

import { RecentValues } from '../core/keyed.js';
import { Timeline } from '../timeline/timeline.js';
import { fetchJson, fetchText, TimelineDecoder } from './decoding.js';
import { takeParts } from './message-parts.js';
import { followTimeline } from './following.js';
import { MOST_BODIES } from './source.js';

/** @import { FollowPort } from './following.js' */
/** @import { Source, BodyAddress } from './source.js' */

/** Bodies, trees and demands of two sessions are kept: one looks at one, or compares two. */
const MOST_KEPT_BLOCKS = 6;

const MOST_HITS = 100;

/** @returns {Source} */
export function serverSource() {
  const decoder = new TimelineDecoder();
  /** @type {RecentValues<BodyBlocks<any>>} */
  const blocks = new RecentValues(MOST_KEPT_BLOCKS);
  /** @param {string} name @param {'bodies' | 'demands' | 'rendered'} what @param {BodyAddress[]} addresses */
  function ofBodies(name, what, addresses) {
    const place = sessionPlace(name, what);
    const known = blocks.get(place) ?? blocks.set(place, new BodyBlocks((wanted) => askBlock(place, wanted)));
    return known.get(addresses);
  }
  return {
    can: { answers: true, live: true, search: true },
    about: () => fetchJson('/api/about'),
    sessions: () => fetchJson('/api/sessions'),
    listed: () => fetchJson('/api/listed'),
    lost: () => fetchJson('/api/lost'),
    async timeline(name) {
      return Timeline.from(await decoder.decode(sessionPlace(name, 'timeline')));
    },
    follow: (timeline, onState) => followTimeline(timeline, serverPort(timeline.session), onState),
    async bodies(name, addresses) {
      return (await ofBodies(name, 'bodies', addresses)).map(({ message }) => message);
    },
    demands: (name, addresses) => ofBodies(name, 'demands', addresses),
    rendered: (name, addresses) => ofBodies(name, 'rendered', addresses),
    async answer(name, question, parameters = {}) {
      const answer = await fetchJson(sessionPlace(name, question, parameters));
      return parameters.parts ? takeParts(answer) : answer;
    },
    async search(query, session, only) {
      const asked = queryOf({ q: query, session, limit: MOST_HITS, ...only });
      const found = await fetchJson(`/api/search${asked}`);
      const counted = found.length === MOST_HITS ? await fetchJson(`/api/matches${asked}`) : null;
      return { found, total: counted?.matches ?? found.length };
    },
    async digests(name) {
      return (await fetchJson(sessionPlace(name, 'digests'))).messages;
    },
  };
}

/**
 * The address of something of a session; parameters that are null are left out.
 * @param {string} name
 * @param {string} what
 * @param {Record<string, unknown>} [parameters]
 */
export function sessionPlace(name, what, parameters = {}) {
  return `/api/s/${encodeURIComponent(name)}/${what}${queryOf(parameters)}`;
}

/** @param {Record<string, unknown>} parameters */
function queryOf(parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined) query.set(name, String(value));
  }
  return query.size === 0 ? '' : `?${query}`;
}

/** @param {string} session @returns {FollowPort} */
function serverPort(session) {
  return {
    open: (after) => new EventSource(sessionPlace(session, 'follow', { after })),
    since: (after) => fetchJson(sessionPlace(session, 'timeline', { after })),
    later(run, milliseconds) {
      const timer = setTimeout(run, milliseconds);
      return () => clearTimeout(timer);
    },
  };
}

/** @param {string} place @param {string[]} addresses @returns {Promise<{messages: any[], size: number}>} */
async function askBlock(place, addresses) {
  // Commas and points need no escapes, and 64 addresses stay short.
  const text = await fetchText(`${place}?at=${addresses.join(',')}${place.endsWith('/bodies') ? '&parts=1' : ''}`);
  return { messages: takeParts(JSON.parse(text)), size: text.length };
}

/** Characters of JSON: about 32 MB in memory. */
const MOST_KEPT = 16_000_000;

/**
 * Bodies of messages. A list asks for the rows in sight, one by one and again and again as it scrolls.
 * What is asked for in one go becomes one question of at most 64 bodies; what is under way is not
 * asked for twice; the bodies used last are kept.
 * @template T what is asked for of each body, such as its message
 */
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
