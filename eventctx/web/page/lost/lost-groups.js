/** Which items of the answer to `lost` are shown, and under which headings. */

import { compactionSummary } from './lost-words.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** An item of the answer, see `eventctx/queries/lost/answers.py`. @typedef {Record<string, any>} LostItem */
/** One kind or all, what is `whole` in view too or not, under headings of kinds or of compactions.
 * @typedef {{kind: string | null, by: 'kind' | 'compaction', whole: boolean}} LostFilter */
/** `key` is the kind, or the cause. @typedef {{key: string, title: string, items: LostItem[]}} ItemGroup */

export const ITEM_KINDS = /** @type {const} */ ([
  ['instruction', 'Instructions'],
  ['file', 'Files'],
  ['command', 'Commands'],
  ['decision', 'Decisions of the model'],
  ['result', 'Results that were used again'],
]);

/** What else takes a message out, as a heading. @type {Readonly<Record<string, string>>} */
const LEFT_BY = {
  compaction: 'A compaction',
  taken_back: 'Undone, as the imported file says',
  set: 'Replaced when the messages were set',
  clear: 'Taken out when the session was cleared',
  replaced: 'Replaced by the host’s own system prompt',
  erased: 'Erased',
  unanswered: 'Results of calls that are not in view',
};

/**
 * Items that are not in view whole, or all, in groups that are not empty. Groups by compaction are in the
 * order of their compactions; other causes come after them.
 *
 * @param {Timeline} timeline
 * @param {LostItem[]} items
 * @param {LostFilter} filter
 * @returns {ItemGroup[]}
 */
export function groupItems(timeline, items, { kind, by, whole }) {
  const away = items.filter((item) => (whole || item.state !== 'whole') && (kind === null || item.kind === kind));
  if (by === 'kind') {
    return ITEM_KINDS
      .map(([key, title]) => ({ key, title, items: away.filter((item) => item.kind === key) }))
      .filter((group) => group.items.length > 0);
  }
  /** @type {Map<string, ItemGroup & {rank: number}>} */
  const groups = new Map();
  for (const item of away) {
    const number = item.left?.compaction ?? null;
    const key = number === null ? item.left?.by ?? 'in view' : `compaction ${number}`;
    /** @type {ItemGroup & {rank: number}} */
    const group = groups.get(key)
      ?? { key, title: causeTitle(timeline, item, number), items: [], rank: number ?? Infinity };
    groups.set(key, group);
    group.items.push(item);
  }
  return [...groups.values()].sort((a, b) => (a.rank === b.rank ? 0 : a.rank - b.rank));
}

/** @param {Timeline} timeline @param {LostItem} item @param {number | null} number of the compaction */
function causeTitle(timeline, item, number) {
  if (!item.left) return 'In view, or a part of it';
  if (number === null) return LEFT_BY[item.left.by] ?? item.left.by;
  const index = timeline.compactions.findIndex((one) => one.number === number);
  return index < 0 ? `Compaction ${number}` : compactionSummary(timeline, index);
}
