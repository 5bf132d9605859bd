// Makes timeline documents in the form that the server sends, without a session: a small one that
// a test can reason about, and a huge one to measure with. The same seed makes the same document.

const KINDS = ['system', 'human', 'user', 'assistant', 'result', 'other'];
const KNOWN = ['observed', 'prepared', 'reconstructed'];
const GROUPS = ['system', 'human', 'user', 'assistant', 'result', 'other', 'inserted', 'made_up'];
const WHAT = [
  'shortened', 'thinking_left_out', 'summarised', 'dropped', 'merged', 'replaced',
  'restored', 'set', 'cleared', 'pinned', 'unpinned', 'erased',
];
const HUMAN = 1;
const ASSISTANT = 3;
const RESULT = 4;
const REASONS = [
  { code: 'old_round', rule: 'the oldest rounds go first' },
  { code: 'long_result', rule: 'a long result is shortened' },
  { code: 'summarised', rule: 'the summary stands for it' },
];

/** A small generator of numbers from 0 to 1 that gives the same row for the same seed. */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

function columns(names) {
  return Object.fromEntries(names.map((name) => [name, []]));
}

function empty(session) {
  return {
    format: 1, session, head: -1, digest: '', after: -1, records: 0,
    mirror: null, parent: null,
    legends: { kinds: KINDS, known: KNOWN, groups: GROUPS, what: WHAT },
    messages: {
      first: 0,
      ...columns(['position', 'index', 'kind', 'tokens', 'characters', 'time', 'turn', 'caller', 'demands']),
    },
    extras: [],
    requests: {
      first: 0,
      ...columns([
        'position', 'time', 'turn', 'iteration', 'known', 'total', 'estimated', 'messages', 'beside',
        'system', 'tools', 'cached', 'budget', 'entries', 'keep', 'add', 'last', 'plan', 'breaks',
        'model', 'digest', 'additions', 'missing', 'floor',
      ]),
    },
    models: ['made-model-1'],
    compactions: [],
    changes: columns(['position', 'first', 'last', 'what', 'reason', 'compaction', 'into']),
    reasons: REASONS,
    turns: [],
    links: [],
    calls: {},
  };
}

/** Ids as the document writes them: runs of ascending messages as pairs, each extra twice. */
export function asPairs(ids) {
  const pairs = [];
  for (const id of ids) {
    const end = pairs.length - 1;
    if (id >= 0 && end > 0 && pairs[end] >= 0 && pairs[end] === id - 1) pairs[end] = id;
    else pairs.push(id, id);
  }
  return pairs;
}

class Maker {
  constructor({ session, messages, requests, compactions, turns, seed, known }) {
    this.document = empty(session);
    this.random = random(seed);
    this.known = known;
    this.perRequest = messages / requests;
    this.perCompaction = compactions > 0 ? requests / (compactions + 0.5) : Infinity;
    this.perTurn = requests / turns;
    this.wanted = { messages, requests };
    this.view = [];
    this.before = [];
    this.beforeSize = 0;
    this.broken = '';
    this.iteration = 0;
    this.out = new Set();
    this.shortened = new Map();
    this.sizes = 0;
  }

  /** The position of the next record. */
  next() {
    this.document.records += 1;
    this.document.head += 1;
    return this.document.head;
  }

  now() {
    return 1_760_000_000_000 + this.document.head * 1500;
  }

  tokensOf(id) {
    return id >= 0 ? this.document.messages.tokens[id] : this.document.extras[-id - 1].tokens;
  }

  add(kind, tokens) {
    const { messages, turns } = this.document;
    const number = messages.kind.length;
    messages.position.push(this.next());
    messages.index.push(0);
    messages.kind.push(kind);
    messages.tokens.push(tokens);
    messages.characters.push(tokens * 4);
    messages.time.push(this.now());
    messages.turn.push(turns.length);
    messages.caller.push(kind === RESULT ? number - 1 : -1);
    messages.demands.push(kind === HUMAN && this.random() < 0.3 ? 1 : 0);
    this.view.push(number);
    this.sizes += tokens;
    if (turns.length > 0) turns[turns.length - 1].last = number;
    return number;
  }

  open() {
    const { turns, messages } = this.document;
    const first = messages.kind.length;
    turns.push({ number: turns.length + 1, turn_id: `turn-${turns.length + 1}`, first, last: first, time: this.now() });
    this.iteration = 0;
    this.add(HUMAN, 40 + Math.floor(this.random() * 400));
  }

  fill(until) {
    while (this.document.messages.kind.length < until) {
      const last = this.document.messages.kind.at(-1);
      if (last === ASSISTANT) this.add(RESULT, 60 + Math.floor(this.random() ** 4 * 6000));
      else this.add(ASSISTANT, 30 + Math.floor(this.random() * 500));
    }
  }

  change(position, first, last, what, reason, compaction) {
    const { changes } = this.document;
    changes.position.push(position);
    changes.first.push(first);
    changes.last.push(last);
    changes.what.push(WHAT.indexOf(what));
    changes.reason.push(reason);
    changes.compaction.push(compaction);
    changes.into.push(-1);
  }

  /** Decides for each message in view: words of a person stay, a fifth of the rest stays at the end,
   * long results of it are shortened, every second compaction summarises what goes. */
  compact() {
    const { document: made } = this;
    const position = this.next();
    const order = made.compactions.length;
    const summarises = order % 2 === 1;
    const before = this.sizes;
    const tail = Math.floor(this.view.length * 0.8);
    const kept = [];
    const gone = [];
    const cut = [];
    this.view.forEach((id, at) => {
      const kind = id >= 0 ? made.messages.kind[id] : -1;
      const number = id >= 0 ? id : (made.extras[-id - 1].number ?? -1);
      const words = kind === HUMAN && at > this.view.length * 0.3;
      if (id >= 0 && at >= tail && kind === RESULT && made.messages.tokens[id] > 900) {
        made.extras.push({ kind: 'shortened', group: RESULT, number: id, position, index: cut.length, tokens: 300, mark: mark(id) });
        kept.push(-made.extras.length);
        cut.push(id);
      } else if (words || at >= tail) kept.push(id);
      else if (number >= 0) gone.push(number);
    });
    const insertions = summarises ? [this.summary(position, gone)] : [];
    for (const [first, last] of runs(gone)) {
      this.change(position, first, last, summarises ? 'summarised' : 'dropped', summarises ? 2 : 0, order);
    }
    for (const [first, last] of runs(cut)) this.change(position, first, last, 'shortened', 1, order);
    this.view = [...insertions, ...kept];
    this.sizes = this.view.reduce((sum, id) => sum + this.tokensOf(id), 0);
    made.compactions.push({
      position, time: this.now(), turn: made.turns.length, iteration: this.iteration,
      outcome: 'applied', trigger: 'threshold', strategy: 'workset', number: order + 1,
      before, before_estimated: false, after: this.sizes, after_estimated: true, recorded: null,
      messages_before: this.before.length, messages_after: this.view.length,
      budget: this.budget, threshold: Math.floor(this.budget * 0.8), target: Math.floor(this.budget * 0.4),
      duration: 4_000_000, requested_by: null, fallback: null, error: null, insertions,
    });
    this.broken = 'compaction';
  }

  summary(position, gone) {
    const { extras } = this.document;
    extras.push({
      kind: 'insertion', group: GROUPS.indexOf('inserted'), position, index: 40, tokens: 700,
      name: 'summary', stands_for: runs(gone), mark: mark(position),
    });
    return -extras.length;
  }

  request(at) {
    const { requests, messages, turns, compactions } = this.document;
    const order = requests.position.length;
    let keep = 0;
    if (this.broken === '') keep = this.before.length;
    else while (keep < this.before.length && this.before[keep] === this.view[keep]) keep += 1;
    const counted = this.random() < 0.8;
    const [system, tools] = [1200, 5400];
    const row = {
      position: this.next(), time: this.now(), turn: turns.length, iteration: ++this.iteration,
      known: this.known(order, at), estimated: counted ? 0 : 1,
      total: this.sizes + system + tools, messages: this.sizes, beside: system + tools, system, tools,
      cached: counted ? Math.floor((this.broken === '' ? 0.95 : 0.2) * this.beforeSize) : -1,
      budget: this.budget, entries: this.view.length, keep,
      add: asPairs(this.view.slice(keep)), last: messages.kind.length - 1,
      plan: compactions.length - 1, breaks: this.broken, model: 0, digest: mark(order),
      additions: 0, missing: 0, floor: 0,
    };
    for (const [name, value] of Object.entries(row)) requests[name].push(value);
    this.before = this.view.slice();
    this.beforeSize = row.total;
    this.broken = '';
  }

  make() {
    const { messages, requests } = this.wanted;
    this.budget = Math.ceil((this.perCompaction === Infinity ? requests : this.perCompaction) * this.perRequest * 1300 / 1000) * 1000;
    this.add(0, 900);
    let compacted = 0;
    for (let order = 0; order < requests; order += 1) {
      if (order >= this.document.turns.length * this.perTurn) this.open();
      this.fill(Math.round((order + 1) * this.perRequest) - (order < requests - 1 ? 0 : 1));
      if (order >= (compacted + 1) * this.perCompaction) {
        this.compact();
        compacted += 1;
      }
      this.request(order / requests);
    }
    this.add(ASSISTANT, 200);
    this.fill(messages);
    this.document.digest = mark(this.document.head);
    return this.document;
  }
}

function mark(value) {
  return (Math.abs(value) * 2654435761 % 2 ** 32).toString(16).padStart(8, '0');
}

/** Ascending numbers as runs `[first, last]`. */
export function runs(numbers) {
  const found = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const end = found.at(-1);
    if (end !== undefined && end[1] === number - 1) end[1] = number;
    else found.push([number, number]);
  }
  return found;
}

export function madeDocument(wanted) {
  const asked = { session: 'made', turns: 5, seed: 1, known: () => 1, ...wanted };
  return new Maker(asked).make();
}

/** 60 messages, 20 requests, 3 compactions, the way of knowing changing twice. */
export function smallDocument() {
  return madeDocument({
    session: 'small', messages: 60, requests: 20, compactions: 3, turns: 4,
    known: (order) => (order < 7 ? 0 : order < 14 ? 1 : 2),
  });
}

/** 100,000 messages, 5,000 requests, 90 compactions. */
export function hugeDocument() {
  return madeDocument({ session: 'huge', messages: 100_000, requests: 5_000, compactions: 90, turns: 250 });
}
