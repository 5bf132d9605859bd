/**
 * One entry of a view: a message as it was added, or what is in its place or next to it.
 */

import { STANDING_SHORTENED, STANDING_WHOLE } from './standing.js';

/** @import { ExtraEntry } from './packing.js' */
/** @import { Timeline } from './timeline.js' */

/**
 * An entry of a view. `kind` is `message` for a message as it was added, else an extra's kind;
 * `position` and `index` are the place of its body, null where the view makes its text up.
 * @typedef {{
 *   id: number, kind: 'message' | ExtraEntry['kind'], number: number | null, group: number,
 *   tokens: number, position: number | null, index: number | null, extra: ExtraEntry | null,
 * }} ViewEntry
 */

/**
 * @param {Timeline} timeline
 * @param {number} id
 * @param {number} request at which its tokens are wanted
 * @returns {ViewEntry}
 */
export function entryOf(timeline, id, request) {
  if (id < 0) return extraEntry(timeline, id, request);
  const { kind, position, index } = timeline.messages;
  return {
    id,
    kind: 'message',
    number: id,
    group: kind[id],
    tokens: tokensOf(timeline, id, request),
    position: position[id],
    index: index[id],
    extra: null,
  };
}

/** @param {Timeline} timeline @param {number} id @param {number} request @returns {ViewEntry} */
function extraEntry(timeline, id, request) {
  const extra = timeline.extras[-id - 1];
  const { kind, group, tokens } = extra;
  const number = extra.number ?? null;
  // What is shown without some of its parts has the body of its message.
  const ofMessage = (kind === 'stripped' || kind === 'partial') && extra.position === undefined;
  const body = ofMessage && number !== null ? entryOf(timeline, number, request) : extra;
  const { position = null, index = null } = body;
  return { id, kind, number, group, tokens, position, index, extra };
}

/**
 * Tokens of a message at a request, as the estimator of the model that was called counts them.
 * @param {Timeline} timeline
 * @param {number} number
 * @param {number} request
 */
function tokensOf({ recounts, messages }, number, request) {
  const again = recounts.findLast((one) => one.from <= request && number < one.tokens.length);
  return again ? again.tokens[number] : messages.tokens[number];
}

/**
 * The message that an entry shows, whole or in part; -1 for what shows none.
 * @param {ExtraEntry[]} extras
 * @param {number} id
 */
export function shownNumber(extras, id) {
  if (id >= 0) return id;
  const { kind, number } = extras[-id - 1];
  const shows = kind === 'shortened' || kind === 'stripped' || kind === 'partial';
  return shows ? (number ?? -1) : -1;
}

/**
 * What names an entry in every view: a message keeps its name when it is shortened, an inserted text
 * when it is inserted again.
 * @param {ViewEntry} entry
 */
export function entryName({ id, kind, number, position, index, extra }) {
  if (kind === 'insertion' && position !== null) return `insertion ${position} ${index}`;
  if (kind === 'synthetic') return `synthetic ${number} ${extra?.call}`;
  return number === null ? `${id}` : `#${number}`;
}

/** The place of an entry's text; null where the view makes it up. @param {ViewEntry} entry */
export function placeOfText({ position, index }) {
  return position === null || index === null ? null : { position, index };
}

/** Whether an inserted text stands for a message. @param {ViewEntry} entry @param {number} number */
export function standsFor({ extra }, number) {
  return extra?.stands_for?.some(([first, last]) => first <= number && number <= last) ?? false;
}

/** The entries of a request's view that are no message as it was added. @param {Timeline} timeline @param {number} request @returns {ViewEntry[]} */
export function extraEntries(timeline, request) {
  return Array.from(timeline.view(request)).filter((id) => id < 0).map((id) => entryOf(timeline, id, request));
}

/** The code of the standing of the message that an entry shows. @param {ExtraEntry[]} extras @param {number} id */
export function shownAs(extras, id) {
  return id < 0 && extras[-id - 1].kind === 'shortened' ? STANDING_SHORTENED : STANDING_WHOLE;
}
