// Two requests' views as one list in order: what only the first has, what both have, what only the
// second has; and how much of the beginning is the same, which a provider can read from its cache.

import { tokensText } from '../parts/numbers.js';
import { shownText } from '../parts/text.js';
import { entryName, shownNumber } from '../timeline/entries.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {ReturnType<Timeline['entry']>} Entry */

/**
 * A row of both views. `changed`: in both, but not with the same text, such as a shortened result.
 * `moved`: in both, but elsewhere in the order.
 *
 * @typedef {{side: 'a' | 'both' | 'b', a: Entry | null, b: Entry | null, changed: boolean,
 *   moved: boolean}} ViewPair
 */

/** @param {Timeline} timeline @param {number} a index of the earlier request @param {number} b @returns {ViewPair[]} */
export function pairedViews(timeline, a, b) {
  const before = Array.from(timeline.view(a), (id) => timeline.entry(id, a));
  const after = Array.from(timeline.view(b), (id) => timeline.entry(id, b));
  const inA = new Map(before.map((entry) => [entryName(entry), entry]));
  const inB = new Map(after.map((entry) => [entryName(entry), entry]));
  /** @type {ViewPair[]} */
  const pairs = [];
  /** @type {Set<string>} */
  const done = new Set();
  const pair = (/** @type {Entry} */ entry, /** @type {boolean} */ moved) => {
    const name = entryName(entry);
    const [one, other] = [inA.get(name) ?? null, inB.get(name) ?? null];
    done.add(name);
    pairs.push({ side: 'both', a: one, b: other, changed: one?.id !== other?.id, moved });
  };
  let i = 0;
  let j = 0;
  while (i < before.length || j < after.length) {
    const left = before[i];
    const right = after[j];
    if (left && done.has(entryName(left))) i++;
    else if (right && done.has(entryName(right))) j++;
    else if (left && !inB.has(entryName(left))) {
      pairs.push({ side: 'a', a: left, b: null, changed: false, moved: false });
      i++;
    } else if (right && !inA.has(entryName(right))) {
      pairs.push({ side: 'b', a: null, b: right, changed: false, moved: false });
      j++;
    } else {
      pair(right, entryName(left) !== entryName(right));
    }
  }
  return pairs;
}

/**
 * The common beginning of two views: entries and their tokens, and those of the second view whole.
 *
 * @param {Timeline} timeline
 * @param {number} a
 * @param {number} b
 */
export function commonPrefix(timeline, a, b) {
  const before = timeline.view(a);
  const after = timeline.view(b);
  let entries = 0;
  let tokens = 0;
  let allTokens = 0;
  after.forEach((id, at) => {
    const size = timeline.entry(id, b).tokens;
    allTokens += size;
    if (entries === at && before[at] === id) {
      entries++;
      tokens += size;
    }
  });
  return { entries, tokens, allEntries: after.length, allTokens };
}

/**
 * Neighbouring rows of one kind together, in order.
 *
 * @param {ViewPair[]} pairs
 * @returns {{kind: 'a' | 'same' | 'changed' | 'b', tokens: number, pairs: ViewPair[]}[]}
 */
export function segmentsOfPairs(pairs) {
  /** @type {ReturnType<typeof segmentsOfPairs>} */
  const segments = [];
  for (const pair of pairs) {
    const altered = pair.changed || pair.moved;
    const kind = pair.side === 'both' ? (altered ? 'changed' : 'same') : pair.side;
    const tokens = (pair.b ?? pair.a)?.tokens ?? 0;
    const last = segments.at(-1);
    if (last?.kind === kind) {
      last.pairs.push(pair);
      last.tokens += tokens;
    } else {
      segments.push({ kind, tokens, pairs: [pair] });
    }
  }
  return segments;
}

/**
 * What changed around the messages from one request to another: only what is known of both.
 *
 * @param {Timeline} timeline
 * @param {number} a
 * @param {number} b
 * @returns {{what: typeof AROUND[number], before: string, after: string}[]}
 */
export function changesAround(timeline, a, b) {
  return AROUND.flatMap((what) => {
    const [before, after] = [a, b].map((request) => timeline.requests[what][request]);
    if (before < 0 || after < 0 || before === after) return [];
    return [{ what, before: aroundText(timeline, what, before), after: aroundText(timeline, what, after) }];
  });
}

/** What is around the messages of a request. */
export const AROUND = /** @type {const} */ (['model', 'budget', 'system', 'tools']);

export const AROUND_WORDS = { model: 'Model', budget: 'Budget', system: 'System prompt', tools: 'Tool definitions' };

/** What a column says of it, in words. @param {Timeline} timeline @param {typeof AROUND[number]} what @param {number} value */
export function aroundText(timeline, what, value) {
  return what === 'model' ? shownText(timeline.models[value]) : `${tokensText(value)} tokens`;
}

/**
 * Messages that changed alike: `what` is 'entered', 'restored', 'shortened', 'thinking_left_out',
 * 'results_left_out', or the standing of those that left.
 * @typedef {{what: string, reason: number, compaction: number, pairs: ViewPair[]}} ChangedMessages
 */

/** In the order in which a person reads them. */
const CHANGES_IN_ORDER = [
  'summarised', 'dropped', 'merged', 'omitted', 'replaced', 'set', 'cleared',
  'shortened', 'thinking_left_out', 'results_left_out', 'restored', 'entered',
];

/**
 * What changed from one request to another, by what became of each message and for which reason.
 * `came` and `went` are texts that are in no transcript; `passed` is how many messages were added in
 * between that the later view does not hold.
 *
 * @param {Timeline} timeline
 * @param {number} before request; -1: nothing was sent before
 * @param {number} after request
 * @returns {{groups: ChangedMessages[], came: ViewPair[], went: ViewPair[], passed: number}}
 */
export function viewChanges(timeline, before, after) {
  const { reason, compaction, position } = timeline.changes;
  const known = before < 0 ? 0 : timeline.requests.last[before] + 1;
  const pairs = pairedViews(timeline, before, after);
  const numbered = (/** @type {ViewPair} */ { a, b }) => shownNumber(timeline.extras, (b ?? a)?.id ?? -1);
  /** @type {Map<string, ChangedMessages>} */
  const groups = new Map();
  for (const pair of pairs) {
    const number = numbered(pair);
    if (number < 0 || (pair.side === 'both' && !pair.changed)) continue;
    const { what, change } = changeOf(timeline, pair, number, { known, after });
    const key = `${what} ${change < 0 ? '' : `${reason[change]} ${position[change]}`}`;
    const group = groups.get(key) ?? { what, reason: reason[change] ?? -1, compaction: compaction[change] ?? -1, pairs: [] };
    groups.set(key, group);
    group.pairs.push(pair);
  }
  const others = pairs.filter((pair) => numbered(pair) < 0);
  const shown = pairs.filter((pair) => pair.b !== null && numbered(pair) >= known).length;
  const rank = (/** @type {ChangedMessages} */ { what }) => CHANGES_IN_ORDER.indexOf(what);
  for (const group of groups.values()) group.pairs.sort((one, other) => numbered(one) - numbered(other));
  return {
    groups: [...groups.values()].sort((one, other) => rank(one) - rank(other)),
    came: others.filter(({ side }) => side === 'b'),
    went: others.filter(({ side }) => side === 'a'),
    passed: (after < 0 ? 0 : timeline.requests.last[after] + 1) - known - shown,
  };
}

/**
 * What became of a message, and by which change; -1 where none was needed.
 *
 * @param {Timeline} timeline
 * @param {ViewPair} pair
 * @param {number} number
 * @param {{known: number, after: number}} requests `known`: messages that there were at the earlier one
 */
function changeOf(timeline, { side, b }, number, { known, after }) {
  if (side === 'b') return { what: number >= known ? 'entered' : 'restored', change: -1 };
  const { what, change } = timeline.standing(number, after);
  if (side === 'a' || b?.kind === 'shortened') return { what, change };
  if (b?.kind === 'stripped') return { what: 'thinking_left_out', change };
  return { what: b?.kind === 'partial' ? 'results_left_out' : 'restored', change: -1 };
}
