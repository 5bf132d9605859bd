// A small session written by hand, for the panes: two tool rounds, then a compaction that drops one
// message, shortens one and summarises two, then a restore.
//
//   #0 system  #1 person  #2 model (call)  #3 result  #4 person  #5 model (call)  #6 result  #7 person
//   request 0 (1.1): #0–#3   compaction @30   request 1 (2.1): #0, summary of #1–#2, #3 cut, #5–#6
//   request 2 (2.2): the same and #1 back, #7

const KINDS = ['system', 'human', 'user', 'assistant', 'result', 'other'];
const CHANGES = [
  'shortened', 'thinking_left_out', 'summarised', 'dropped', 'merged', 'replaced',
  'restored', 'set', 'cleared', 'pinned', 'unpinned', 'erased',
];

export function panesDocument() {
  const zeros = (count) => Array(count).fill(0);
  const less = (count) => Array(count).fill(-1);
  return {
    format: 1, session: 'hand', head: 50, digest: '', after: -1, records: 51,
    mirror: null, source_format: null, parent: null,
    legends: { kinds: KINDS, known: ['observed', 'prepared', 'reconstructed'], groups: [...KINDS, 'inserted', 'made_up'], what: CHANGES },
    messages: {
      first: 0, position: [1, 2, 3, 4, 20, 21, 22, 40], index: zeros(8), kind: [0, 1, 3, 4, 1, 3, 4, 1],
      tokens: [90, 10, 20, 9000, 15, 25, 300, 12], characters: [360, 40, 80, 36000, 60, 100, 1200, 48],
      time: [0, 1, 2, 3, 4, 5, 6, 7].map((n) => 1_760_000_000_000 + n), turn: [-1, 1, 1, 1, 2, 2, 2, 2],
      caller: [-1, -1, -1, 2, -1, -1, 5, -1], demands: [0, 1, 0, 0, 0, 0, 0, 0],
    },
    extras: [
      { kind: 'insertion', group: 6, position: 30, index: 1, tokens: 50, name: 'summary', stands_for: [[1, 2]], mark: '00' },
      { kind: 'shortened', group: 4, number: 3, position: 30, index: 0, tokens: 600, mark: '01' },
    ],
    requests: {
      first: 0, position: [10, 35, 45], time: [1, 2, 3].map((n) => 1_760_000_000_000 + n), turn: [1, 2, 2], iteration: [1, 1, 2],
      known: [1, 1, 1], total: [9120, 1065, 1087], estimated: [1, 1, 1], messages: [9120, 1065, 1087], beside: zeros(3),
      system: less(3), tools: less(3), cached: less(3), budget: [10000, 10000, 10000], entries: [4, 5, 7],
      keep: [0, 1, 1], add: [[0, 3], [-1, -1, -2, -2, 5, 6], [1, 1, -1, -1, -2, -2, 5, 7]],
      last: [3, 6, 7], plan: [-1, 0, 0], breaks: ['', 'compaction', 'restore'], model: less(3), digest: ['', '', ''],
      additions: [0, 0, 2], missing: [0, 0, 1], floor: zeros(3),
    },
    models: [],
    compactions: [{
      position: 30, time: 1_760_000_000_002, turn: 2, iteration: 1, outcome: 'applied', trigger: 'threshold', strategy: 'ladder',
      number: 1, before: 9460, before_estimated: false, after: 1065, after_estimated: true, recorded: null,
      messages_before: 7, messages_after: 5, budget: 10000, threshold: 8000, target: 4000, duration: 4_000_000,
      requested_by: null, fallback: null, error: null, insertions: [-1],
    }],
    changes: {
      position: [30, 30, 30, 38], first: [1, 3, 4, 1], last: [2, 3, 4, 1],
      what: ['summarised', 'shortened', 'dropped', 'restored'].map((one) => CHANGES.indexOf(one)),
      reason: [0, 1, 2, -1], compaction: [0, 0, 0, -1], into: less(4),
    },
    reasons: [
      { code: 'summary', rule: 'a summary stands for it' },
      { code: 'old_result', rule: 'an old tool result, shortened to reach the target' },
      { code: 'old_words', rule: 'an old user message, cut or dropped to reach the target' },
    ],
    turns: [], links: [], calls: {}, recounts: [],
  };
}

