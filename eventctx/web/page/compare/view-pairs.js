// Two requests' views as one list in order: what only the first has, what both have, what only the
// second has; and how much of the beginning is the same, which a provider can read from its cache.

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
  const inA = new Map(before.map((entry) => [nameOfEntry(entry), entry]));
  const inB = new Map(after.map((entry) => [nameOfEntry(entry), entry]));
  /** @type {ViewPair[]} */
  const pairs = [];
  /** @type {Set<string>} */
  const done = new Set();
  const pair = (/** @type {Entry} */ entry, /** @type {boolean} */ moved) => {
    const name = nameOfEntry(entry);
    const [one, other] = [inA.get(name) ?? null, inB.get(name) ?? null];
    done.add(name);
    pairs.push({ side: 'both', a: one, b: other, changed: one?.id !== other?.id, moved });
  };
  let i = 0;
  let j = 0;
  while (i < before.length || j < after.length) {
    const left = before[i];
    const right = after[j];
    if (left && done.has(nameOfEntry(left))) i++;
    else if (right && done.has(nameOfEntry(right))) j++;
    else if (left && !inB.has(nameOfEntry(left))) {
      pairs.push({ side: 'a', a: left, b: null, changed: false, moved: false });
      i++;
    } else if (right && !inA.has(nameOfEntry(right))) {
      pairs.push({ side: 'b', a: null, b: right, changed: false, moved: false });
      j++;
    } else {
      pair(right, nameOfEntry(left) !== nameOfEntry(right));
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
 * @returns {{what: 'model' | 'budget' | 'system' | 'tools', before: string | number,
 *   after: string | number}[]}
 */
export function changesAround(timeline, a, b) {
  const { requests, models } = timeline;
  /** @type {ReturnType<typeof changesAround>} */
  const found = [];
  const [from, to] = [requests.model[a], requests.model[b]];
  if (from >= 0 && to >= 0 && from !== to) {
    found.push({ what: 'model', before: models[from], after: models[to] });
  }
  for (const what of /** @type {const} */ (['budget', 'system', 'tools'])) {
    const [before, after] = [requests[what][a], requests[what][b]];
    if (before >= 0 && after >= 0 && before !== after) found.push({ what, before, after });
  }
  return found;
}

/**
 * What names an entry in every view: a message keeps its name when it is shortened, an inserted text
 * when it is inserted again.
 *
 * @param {Entry} entry
 */
function nameOfEntry({ id, kind, number, position, index, extra }) {
  if (['message', 'shortened', 'stripped', 'partial'].includes(kind)) return `#${number}`;
  if (kind === 'insertion' && position !== null) return `insertion ${position} ${index}`;
  return kind === 'synthetic' ? `synthetic ${number} ${extra?.call}` : `${id}`;
}
