/** One cell of the presence map: where keys take it, what it says, what it opens. */

import { go } from '../core/place.js';
import { countText } from '../parts/numbers.js';
import { standingWord } from '../parts/standing.js';
import { batch } from '../core/signals.js';
import { setCursor } from '../core/state.js';
import { STANDINGS } from '../timeline/standing.js';
import { cellWords } from './request-words.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/** A message at a request. @typedef {{message: number, request: number}} PresenceCell */

/**
 * Where a key takes the cell; null for keys that are not the map's. In a map with many messages in a
 * row, a step down goes to the next row.
 * @param {PresenceCell} from
 * @param {{key: string, ctrlKey: boolean}} pressed
 * @param {{perRow: number, page: number, messages: number, first: number, last: number, requests: number}} map
 * @returns {PresenceCell | null}
 */
export function cellByKey({ message, request }, { key, ctrlKey }, { perRow, page, messages, first, last, requests }) {
  const [down, across] = {
    ArrowUp: [-perRow, 0],
    ArrowDown: [perRow, 0],
    PageUp: [-page * perRow, 0],
    PageDown: [page * perRow, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    Home: ctrlKey ? [-messages, 0] : [0, first - request],
    End: ctrlKey ? [messages, 0] : [0, last - request],
  }[key] ?? [0, 0];
  if (down === 0 && across === 0 && key !== 'Home' && key !== 'End') return null;
  return {
    message: Math.min(messages - 1, Math.max(0, message + down)),
    request: Math.min(requests - 1, Math.max(0, request + across)),
  };
}

/**
 * What a cell says; where a row has many messages, how many of them are sent.
 * @param {Timeline} timeline
 * @param {PresenceCell} cell
 * @param {number} perRow
 */
export function spokenCell(timeline, { message, request }, perRow) {
  if (perRow === 1) return cellWords(timeline, message, request);
  const first = Math.floor(message / perRow) * perRow;
  const last = Math.min(timeline.messages.count, first + perRow) - 1;
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const code of timeline.standings(request).subarray(first, last + 1)) {
    const word = standingWord(STANDINGS[code] ?? '');
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const said = [...counts].map(([word, count]) => `${countText(count)} ${word}`).join(', ');
  return `#${first} to #${last} at ${timeline.name(request)}: ${said}`;
}

/** Goes to the message at the request, and to its why. One step for the back button. @param {PresenceCell} cell */
export function openCell({ message, request }) {
  batch(() => {
    go({ message, tab: 'why' });
    setCursor(request);
  });
}
