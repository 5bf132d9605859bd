/** One message that a search found, and whether the model is sent it: at the cursor, and first. */

import { h } from '../core/element.js';
import { kindWord, standingMark } from '../parts/standing.js';
import { firstLine } from '../parts/text.js';
import { linkTo } from '../core/place.js';
import { wordsOfQuery } from '../source/searching.js';
import { lastNotAbove } from '../timeline/columns.js';
import { shownNumber } from '../timeline/entries.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/** A hit as `eventctx search --json` has it. @typedef {Record<string, any>} SearchHit */

/** @type {Readonly<Record<string, string>>} */
const ROLE_WORDS = { user: 'user', assistant: 'model', tool: 'result', system: 'system' };

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
        text: `#${hit.number}`,
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
  const who = kind === undefined ? roleWord(hit) : kindWord(kind);
  return [who, turn > 0 ? `turn ${turn}` : '', when === '' ? '' : `${when} UTC`].filter(Boolean).join(' · ');
}

/** Anthropic's results are in the user's role. @param {SearchHit} hit @returns {string} */
export function roleWord({ role, message }) {
  const parts = Array.isArray(message?.content) ? message.content : [];
  const isResult = parts.some((/** @type {any} */ part) => part?.type === 'tool_result');
  return ROLE_WORDS[isResult ? 'tool' : role] ?? role;
}

/**
 * A text in pieces, of which those that a query asks for are marked: joined, they are the text.
 *
 * @param {string} query
 * @param {string} text
 * @returns {{text: string, hit: boolean}[]}
 */
export function hitPieces(query, text) {
  const words = wordsOfQuery(query).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  if (words.length === 0) return [{ text, hit: false }];
  // The longest first: of two that begin alike the whole one is marked.
  const pattern = new RegExp(`(${words.sort((a, b) => b.length - a.length).join('|')})`, 'iu');
  return text.split(pattern).map((piece, at) => ({ text: piece, hit: at % 2 === 1 })).filter((piece) => piece.text !== '');
}

/** A message that was not in view at once may never have been: so many requests are asked. */
const REQUESTS_ASKED = 64;

/**
 * The first request that was sent a message, whole or in part; -1 if none was.
 *
 * @param {Timeline} timeline
 * @param {number} number
 */
export function firstRequestWith(timeline, number) {
  const { last, count } = timeline.requests;
  // `last` only grows, so the first request that could hold the message is found by halves.
  const from = lastNotAbove(last, number - 1) + 1;
  for (let request = from; request < Math.min(count, from + REQUESTS_ASKED); request++) {
    if (isShown(timeline, number, request)) return request;
  }
  return -1;
}

/**
 * Whether a request's view shows a message. A standing would be worked out for all messages at once,
 * which is too much for each of a thousand hits.
 *
 * @param {Timeline} timeline
 * @param {number} number
 * @param {number} request
 */
function isShown(timeline, number, request) {
  const view = timeline.view(request);
  return view.includes(number) || view.some((id) => id < 0 && shownNumber(timeline.extras, id) === number);
}

/**
 * The requests of found messages, each once, in order: ticks on the river.
 *
 * @param {Timeline} timeline
 * @param {Iterable<number>} numbers
 * @returns {number[]}
 */
export function requestsOfHits(timeline, numbers) {
  const found = new Set(Array.from(numbers, (number) => firstRequestWith(timeline, number)));
  found.delete(-1);
  return [...found].sort((a, b) => a - b);
}
