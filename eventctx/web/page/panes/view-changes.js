// What changed from one request to another: messages that entered, left or read otherwise, each
// with its reason, and the texts next to them. From the columns alone: no text is needed for it.

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/**
 * Messages that changed alike: `what` is 'entered', 'restored', 'shortened', 'thinking_left_out',
 * 'results_left_out', or the standing of those that left.
 * @typedef {{what: string, reason: number, compaction: number, position: number,
 *   numbers: number[]}} ChangedMessages
 */

/**
 * @typedef {object} ViewChanges
 * @property {ChangedMessages[]} groups in the order in which a person reads them
 * @property {number[]} came entries that are in no transcript, only in the later view
 * @property {number[]} went the same, only in the earlier one
 * @property {number} passed messages added in between that the later view does not hold
 */

const READING_ORDER = [
  'summarised', 'dropped', 'merged', 'omitted', 'replaced', 'set', 'cleared',
  'shortened', 'thinking_left_out', 'results_left_out', 'restored', 'entered',
];

/**
 * @param {Timeline} timeline
 * @param {number} before request; -1: nothing was sent before
 * @param {number} after request
 * @returns {ViewChanges}
 */
export function viewChanges(timeline, before, after) {
  const earlier = entriesByKey(timeline, before);
  const later = entriesByKey(timeline, after);
  const known = before < 0 ? 0 : timeline.requests.last[before] + 1;
  /** @type {Map<string, ChangedMessages>} */
  const groups = new Map();
  /** @type {(what: string, number: number, change?: number) => void} */
  const note = (what, number, change = -1) => {
    const { reason, compaction, position } = timeline.changes;
    const key = `${what} ${change < 0 ? '' : `${reason[change]} ${position[change]}`}`;
    let group = groups.get(key);
    if (group === undefined) {
      group = {
        what, reason: change < 0 ? -1 : reason[change],
        compaction: change < 0 ? -1 : compaction[change],
        position: change < 0 ? -1 : position[change], numbers: [],
      };
      groups.set(key, group);
    }
    group.numbers.push(number);
  };

  for (const number of earlier.messages.keys()) {
    if (later.messages.has(number)) continue;
    const { what, change } = timeline.standing(number, after);
    note(what, number, change);
  }
  for (const [number, id] of later.messages) {
    const was = earlier.messages.get(number);
    if (was === undefined) note(number >= known ? 'entered' : 'restored', number);
    else if (was !== id) noteChanged(timeline, number, id, after, note);
  }

  let passed = 0;
  const last = after < 0 ? -1 : timeline.requests.last[after];
  for (let number = known; number <= last; number++) if (!later.messages.has(number)) passed++;
  const order = [...groups.values()];
  for (const group of order) group.numbers.sort((a, b) => a - b);
  order.sort((a, b) => READING_ORDER.indexOf(a.what) - READING_ORDER.indexOf(b.what));
  return {
    groups: order,
    came: [...later.others.entries()].filter(([key]) => !earlier.others.has(key)).map(([, id]) => id),
    went: [...earlier.others.entries()].filter(([key]) => !later.others.has(key)).map(([, id]) => id),
    passed,
  };
}

/**
 * The entries of the later view that the earlier one does not hold in the same form.
 * @param {Timeline} timeline
 * @param {number} before
 * @param {number} after
 * @returns {Set<number>}
 */
export function newEntries(timeline, before, after) {
  const view = timeline.view(after);
  if (before < 0) return new Set(view);
  const held = new Set(timeline.view(before));
  const others = entriesByKey(timeline, before).others;
  const found = new Set();
  for (const id of view) {
    if (held.has(id)) continue;
    const entry = timeline.entry(id);
    if (entry.number === null && others.has(keyOfEntry(entry))) continue;
    found.add(id);
  }
  return found;
}

/**
 * @param {Timeline} timeline
 * @param {number} number
 * @param {number} now
 * @param {number} after
 * @param {(what: string, number: number, change?: number) => void} note
 */
function noteChanged(timeline, number, now, after, note) {
  const kind = now < 0 ? timeline.entry(now).kind : 'message';
  const { change } = timeline.standing(number, after);
  if (kind === 'shortened') note('shortened', number, change);
  else if (kind === 'stripped') note('thinking_left_out', number, change);
  else if (kind === 'partial') note('results_left_out', number);
  else note('restored', number);
}

/**
 * @param {Timeline} timeline
 * @param {number} request
 * @returns {{messages: Map<number, number>, others: Map<string, number>}} entry ids by message
 *   number, and those of entries that are no message by what they are
 */
function entriesByKey(timeline, request) {
  const messages = new Map();
  const others = new Map();
  if (request < 0) return { messages, others };
  for (const id of timeline.view(request)) {
    if (id >= 0) {
      messages.set(id, id);
      continue;
    }
    const entry = timeline.entry(id);
    // A made-up result is of a message, too, but stands next to it.
    if (entry.number !== null && entry.kind !== 'synthetic') messages.set(entry.number, id);
    else others.set(keyOfEntry(entry), id);
  }
  return { messages, others };
}

/** @param {{kind: string, position: number|null, index: number|null, number: number|null, extra: any}} entry */
function keyOfEntry(entry) {
  if (entry.kind === 'insertion') return `insertion ${entry.position} ${entry.index}`;
  if (entry.kind === 'synthetic') return `synthetic ${entry.number} ${entry.extra?.call}`;
  return entry.kind;
}
