/** A search over the texts of one session, read in slices: for where nobody else can be asked. */

import { foundIn, wordsOfQuery } from '../source/searching.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** A hit as `eventctx search --json` has it. @typedef {Record<string, any>} SearchHit */

/** Bodies that are read at once; the server takes no more. */
const SLICE = 64;

/** A page must stay usable while it looks through a hundred thousand messages. */
const MOST_LOCAL_HITS = 1000;

/**
 * Messages that hold every word; where there are none, messages with any of them. In order.
 *
 * @param {Timeline} timeline
 * @param {string} query
 * @param {(places: {position: number, index: number}[]) => Promise<any[]>} bodies
 * @param {(done: number, of: number) => boolean} progress false: nobody wants the answer any more
 * @returns {Promise<SearchHit[]>}
 */
export async function searchTexts(timeline, query, bodies, progress) {
  const words = wordsOfQuery(query);
  const { count, position, index, time } = timeline.messages;
  /** @type {SearchHit[]} */
  const found = [];
  for (let first = 0; words.length > 0 && first < count; first += SLICE) {
    if (!progress(first, count)) return [];
    const numbers = Array.from({ length: Math.min(SLICE, count - first) }, (_, at) => first + at);
    const places = numbers.map((number) => ({ position: position[number], index: index[number] }));
    const messages = await bodies(places);
    numbers.forEach((number, at) => {
      const match = messages[at] ? foundIn(messages[at], words) : null;
      if (match === null) return;
      found.push({
        session: timeline.session, number, position: position[number],
        time: new Date(time[number]).toISOString(), ...match,
      });
    });
  }
  const all = found.filter(({ score }) => score === words.length);
  return (all.length > 0 ? all : found).slice(0, MOST_LOCAL_HITS);
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
  const pattern = new RegExp(words.sort((a, b) => b.length - a.length).join('|'), 'giu');
  /** @type {{text: string, hit: boolean}[]} */
  const pieces = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > at) pieces.push({ text: text.slice(at, match.index), hit: false });
    pieces.push({ text: match[0], hit: true });
    at = match.index + match[0].length;
  }
  if (at < text.length) pieces.push({ text: text.slice(at), hit: false });
  return pieces;
}
