/**
 * The server as the page's source: `eventctx inspect` on this machine.
 */

import { RecentValues } from '../core/keyed.js';
import { Timeline } from '../timeline/timeline.js';
import { BodyBlocks } from './blocks.js';
import { fetchJson, fetchText, TimelineDecoder } from './decoding.js';
import { takeParts } from './message-parts.js';
import { followTimeline } from './following.js';

/** @import { FollowPort } from './following.js' */
/** @import { Source } from './source.js' */

/** Bodies, trees and demands of two sessions are kept: one looks at one, or compares two. */
const MOST_KEPT_BLOCKS = 6;

const MOST_HITS = 100;

/** @returns {Source} */
export function serverSource() {
  const decoder = new TimelineDecoder();
  /** @type {RecentValues<BodyBlocks<any>>} */
  const blocks = new RecentValues(MOST_KEPT_BLOCKS);
  /** @param {string} name @param {'bodies' | 'demands' | 'rendered'} what @param {import('./source.js').BodyAddress[]} addresses */
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
