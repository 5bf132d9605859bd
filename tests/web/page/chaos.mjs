// Documents without any order in them, and a slow and simple reading of a document. What a session
// can never say is in them too: the page derives the same from any columns.

import { asPairs } from './made.mjs';

const WHAT = [
  'shortened', 'thinking_left_out', 'summarised', 'dropped', 'merged', 'replaced',
  'restored', 'set', 'cleared', 'pinned', 'unpinned', 'erased',
];
const OUT = ['summarised', 'dropped', 'merged', 'replaced', 'set', 'cleared'];

/** Numbers that are the same for the same seed (mulberry32's idea: a counter, well mixed). */
export function seeded(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x9e3779b9) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 16), 0x85ebca6b);
    mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
    return ((mixed ^ (mixed >>> 16)) >>> 0) / 2 ** 32;
  };
  const below = (limit) => Math.floor(next() * limit);
  return { next, below, one: (list) => list[below(list.length)] };
}

/** The records of a session: `[{type, row}]`, each at its place as its position. */
export function chaos(random) {
  const records = [];
  const state = { messages: 0, view: [], extras: [], requests: 0, reasons: 0, compactions: 0 };
  const steps = 5 + random.below(60);
  for (let step = 0; step < steps; step++) {
    const made = random.one([message, message, message, message, request, request, change, recount]);
    made(random, state, records);
  }
  return records;
}

function message(random, state, records) {
  const number = state.messages++;
  const row = {
    index: 0, kind: random.below(6), tokens: random.below(900), characters: random.below(9000),
    time: 1e12 + records.length, turn: -1, caller: number > 0 && random.below(3) === 0 ? random.below(number) : -1,
    demands: random.below(2),
  };
  records.push({ type: 'message', row });
  state.view.push(number);
}

function change(random, state, records) {
  if (state.messages === 0) return;
  const first = random.below(state.messages);
  const last = Math.min(state.messages - 1, first + random.below(6));
  const row = {
    first, last, what: random.below(WHAT.length), reason: -1,
    compaction: random.below(2) ? -1 : state.compactions++, into: -1,
  };
  const compaction = row.compaction < 0 ? null : { number: row.compaction + 1, before: 9, after: 5 };
  records.push({ type: 'change', row, compaction });
  rearrange(random, state);
}

/** Takes some entries out, shows others otherwise, and puts some among them that are no messages. */
function rearrange(random, state) {
  const from = random.below(state.view.length + 1);
  const tail = state.view.slice(from).filter(() => random.below(4) > 0);
  const kinds = ['shortened', 'stripped', 'partial', 'insertion', 'synthetic', 'opening'];
  state.view.length = from;
  for (const id of tail) {
    if (id < 0 || random.below(4) > 0) {
      state.view.push(id);
      continue;
    }
    const kind = random.one(kinds);
    const shows = kinds.indexOf(kind) < 3;
    const number = shows || kind === 'synthetic' ? { number: id } : {};
    state.extras.push({
      kind, ...number, group: shows ? random.below(6) : 6 + random.below(2), tokens: random.below(300), mark: '6f',
    });
    state.view.push(-state.extras.length);
  }
}

function request(random, state, records) {
  const row = {
    time: 1e12 + records.length, turn: random.below(3) - 1, iteration: random.below(3) - 1, known: 1,
    total: random.below(9999), estimated: 1, messages: random.below(9999), beside: -1, system: -1, tools: -1,
    cached: -1, budget: -1, last: state.messages - 1, plan: -1, breaks: '', model: -1, digest: '',
    additions: 0, missing: 0, floor: 0,
  };
  records.push({ type: 'request', row, view: state.view.slice(), extras: state.extras.slice() });
  state.requests += 1;
}

function recount(random, state, records) {
  if (random.below(4) > 0) return;
  const tokens = Array.from({ length: state.messages }, () => random.below(900));
  records.push({ type: 'recount', row: { from: state.requests, tokens } });
}

const MESSAGES = ['position', 'index', 'kind', 'tokens', 'characters', 'time', 'turn', 'caller', 'demands'];
const REQUESTS = [
  'position', 'time', 'turn', 'iteration', 'known', 'total', 'estimated', 'messages', 'beside', 'system', 'tools',
  'cached', 'budget', 'entries', 'keep', 'add', 'last', 'plan', 'breaks', 'model', 'digest', 'additions',
  'missing', 'floor',
];
const CHANGES = ['position', 'first', 'last', 'what', 'reason', 'compaction', 'into'];

const table = (names, rows) => Object.fromEntries(names.map((name) => [name, rows.map((row) => row[name])]));

/** The document of the records from `start` to before `end`. */
export function documentOf(records, start, end) {
  const rows = { message: [], request: [], change: [], recount: [] };
  const firsts = { message: 0, request: 0 };
  const compactions = [];
  let before = [];
  let known = 0;
  let extras = [];
  records.slice(0, end).forEach(({ type, row, view, extras: now, compaction }, position) => {
    const fresh = position >= start;
    if (!fresh && type in firsts) firsts[type] += 1;
    if (compaction && fresh) compactions.push({ position, ...compaction });
    if (type === 'request') {
      let keep = 0;
      while (keep < Math.min(before.length, view.length) && before[keep] === view[keep]) keep += 1;
      row = { ...row, entries: view.length, keep, add: asPairs(view.slice(keep)) };
      before = view;
      extras = now;
      if (!fresh) known = now.length;
    }
    if (fresh) rows[type].push({ position, ...row });
  });
  return {
    format: 1, session: 'chaos', head: end - 1, digest: String(end), after: start - 1, after_digest: String(start), records: end,
    mirror: null, source_format: null, parent: null,
    messages: { first: firsts.message, ...table(MESSAGES, rows.message) },
    extras: extras.slice(known),
    requests: { first: firsts.request, ...table(REQUESTS, rows.request) },
    models: [], compactions, changes: table(CHANGES, rows.change), reasons: [], turns: [], links: [], calls: {},
    recounts: rows.recount.map(({ from, tokens }) => ({ from, tokens })),
  };
}

/** What the records say, by the words of the contract and by no other way. */
export function slowly(records) {
  const messages = records.filter(({ type }) => type === 'message').map(({ row }) => row);
  const requests = [];
  const tokens = [];
  const out = messages.map(() => 'omitted');
  records.forEach(({ type, row, view, extras }, position) => {
    if (type === 'message') tokens.push(row.tokens);
    if (type === 'recount') row.tokens.forEach((one, number) => (tokens[number] = one));
    if (type === 'change') {
      const what = WHAT[row.what];
      for (let number = row.first; number <= row.last; number++) {
        if (OUT.includes(what)) out[number] = what;
        if (what === 'restored') out[number] = 'omitted';
      }
    }
    if (type !== 'request') return;
    const standings = messages.map((_, number) => (number > row.last ? 'not_added' : out[number]));
    const counted = new Array(8).fill(0);
    for (const id of view) {
      const extra = id < 0 ? extras[-id - 1] : null;
      counted[extra ? extra.group : messages[id].kind] += extra ? extra.tokens : tokens[id];
      const shows = !extra || ['shortened', 'stripped', 'partial'].includes(extra.kind);
      if (shows) standings[extra ? extra.number : id] = extra?.kind === 'shortened' ? 'shortened' : 'whole';
    }
    requests.push({ position, view, standings, counted });
  });
  return { messages, requests };
}
