/** One message that a search found, and whether the model is sent it at the cursor. */

import { h } from '../core/element.js';
import { standingMark } from '../parts/standing.js';
import { firstLine } from '../parts/text.js';
import { linkTo } from '../core/place.js';
import { firstRequestWith } from './hits-in-requests.js';
import { hitPieces } from './text-search.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('./text-search.js').SearchHit} SearchHit */

/** @type {Readonly<Record<string, string>>} */
const ROLE_WORDS = { user: 'user', assistant: 'model', tool: 'tool result', system: 'system' };

/** In the order of the codes of kinds. */
const KIND_OF_HIT = ['system', 'you', 'host', 'model', 'tool result', 'other'];

/**
 * @param {SearchHit} hit
 * @param {string} query
 * @param {Timeline | null} timeline of the hit's session, null where another one is open
 * @param {number} request the cursor
 * @returns {HTMLElement}
 */
export function hitRow(hit, query, timeline, request) {
  const first = timeline === null ? -1 : firstRequestWith(timeline, hit.number);
  const standing = timeline === null || request < 0 ? null : timeline.standing(hit.number, request);
  return h('li', { class: 'hit' },
    h('p', { class: 'hit-head' },
      h('a', {
        href: linkTo({ session: hit.session, screen: 'session', message: hit.number, at: placeOfHit(timeline, request, standing, first) }),
        text: timeline === null ? `${hit.session} #${hit.number}` : `#${hit.number}`,
      }),
      h('span', { class: 'muted', text: whoText(hit, timeline) }),
      standing === null ? null : standingMark(standing.what),
      first < 0 || timeline === null ? null : h('span', { class: 'muted', text: `first sent in ${timeline.name(first)}` })),
    h('p', { class: 'hit-text' }, hitPieces(query, firstLine(hit.snippet, 320)).map((piece) =>
      piece.hit ? h('mark', { text: piece.text }) : piece.text)));
}

/**
 * Where a link leads: to the cursor if the message exists there, else to where it was first sent.
 *
 * @param {Timeline | null} timeline
 * @param {number} request
 * @param {{what: string} | null} standing
 * @param {number} first
 */
function placeOfHit(timeline, request, standing, first) {
  if (timeline === null) return null;
  const at = standing?.what === 'not_added' && first >= 0 ? first : request;
  return at < 0 || at === timeline.requests.count - 1 ? null : timeline.requests.position[at];
}

/** @param {SearchHit} hit @param {Timeline | null} timeline */
function whoText(hit, timeline) {
  const turn = timeline?.messages.turn[hit.number] ?? -1;
  const when = String(hit.time ?? '').slice(0, 16).replace('T', ' ');
  const kind = timeline?.messages.kind[hit.number];
  const who = kind === undefined ? (ROLE_WORDS[hit.role] ?? hit.role) : KIND_OF_HIT[kind];
  return [who, turn > 0 ? `turn ${turn}` : '', when === '' ? '' : `${when} UTC`].filter(Boolean).join(' · ');
}
