import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  breaksByReason, changesOverRequests, provenText, requestsByKnown,
} from '../../../eventctx/web/page/integrity/known-requests.js';
import { checkViews } from '../../../eventctx/web/page/integrity/checks.js';
import { restoreCommand } from '../../../eventctx/web/page/lost/choosing.js';
import { groupItems } from '../../../eventctx/web/page/lost/lost-answer.js';
import { markedPieces } from '../../../eventctx/web/page/lost/lost-card.js';
import { lostRows } from '../../../eventctx/web/page/lost/lost-words.js';
import { keptInSummary, reasonText } from '../../../eventctx/web/page/lost/lost-words.js';
import { shellQuoted } from '../../../eventctx/web/page/parts/copying.js';
import { firstRequestWith, requestsOfHits } from '../../../eventctx/web/page/search/hit-row.js';
import { hitPieces } from '../../../eventctx/web/page/search/hit-row.js';
import { viewDigest, MessageMarks } from '../../../eventctx/web/page/timeline/digest.js';
import { shownNumber } from '../../../eventctx/web/page/timeline/entries.js';
import { HUMAN_KIND } from '../../../eventctx/web/page/timeline/groups.js';
import { Timeline } from '../../../eventctx/web/page/timeline/timeline.js';
import { smallDocument } from './made.mjs';

const numbersIn = (timeline, request) =>
  new Set(Array.from(timeline.view(request), (id) => shownNumber(timeline.extras, id)));

test('each of a person’s messages that a request lacks is a row, those with demands first', () => {
  const timeline = Timeline.from(smallDocument());
  const { kind, demands } = timeline.messages;
  let seen = 0;
  for (let request = 0; request < timeline.requests.count; request++) {
    const shown = numbersIn(timeline, request);
    const wanted = Array.from(kind, (_, number) => number).filter((number) =>
      kind[number] === HUMAN_KIND && number <= timeline.requests.last[request] && !shown.has(number));
    const rows = lostRows(timeline, request);
    assert.deepEqual(rows.map(({ number }) => number).sort((a, b) => a - b), wanted);
    const ranks = rows.map(({ number }) => (demands[number] > 0 ? 0 : 1));
    assert.deepEqual(ranks, [...ranks].sort());
    for (const row of rows) {
      seen++;
      assert.ok(!numbersIn(timeline, row.fell).has(row.number));
      if (row.fell > 0) assert.ok(numbersIn(timeline, row.fell - 1).has(row.number));
      assert.notEqual(row.reason, null);
      for (const { extra } of row.standsIn) {
        assert.ok(extra.stands_for.some(([first, last]) => first <= row.number && row.number <= last));
      }
    }
  }
  assert.ok(seen > 0, 'the made session loses words of a person');
});

test('what was summarised is told with the summary that stands for it', () => {
  const timeline = Timeline.from(smallDocument());
  const last = timeline.requests.count - 1;
  const rows = Array.from({ length: last + 1 }, (_, request) => lostRows(timeline, request)).flat();
  const summarised = rows.filter(({ what, standsIn }) => what === 'summarised' && standsIn.length > 0);
  assert.ok(summarised.length > 0);
  for (const { standsIn } of summarised) assert.equal(standsIn[0].extra.name, 'summary');
});

test('why a message is lost is one sentence, with the rule only where it says more', () => {
  const cut = { code: 'old_round', rule: 'an old tool round, dropped to reach the target' };
  assert.equal(reasonText({ what: 'dropped', reason: cut }),
    'Left out by a compaction: an old tool round, dropped to reach the target (old_round).');
  const said = { code: 'summary', rule: 'a summary stands for it' };
  assert.equal(reasonText({ what: 'summarised', reason: said }), 'A summary was sent instead.');
  assert.equal(reasonText({ what: 'cleared', reason: null }), 'Taken out when the session was cleared.');
});

test('a demand is kept by a summary only if its words stand there, whatever the line breaks', () => {
  const demands = ['Never touch main.py.', 'Use tabs, please.'];
  const [first] = demands;
  assert.equal(keptInSummary([first], [['He said: never\n  touch main.py.']]), 'it holds the demand word for word');
  assert.equal(keptInSummary([first], [['main.py is off limits']]), 'the demand is not in it word for word');
  assert.equal(keptInSummary([first], [['a'], ['b']]), 'the demand is not in them word for word');
  assert.equal(keptInSummary(demands, [['use tabs, please.']]), 'it holds 1 of the 2 demands word for word');
  assert.equal(keptInSummary(demands, [['nothing']]), 'it holds none of the 2 demands word for word');
  assert.equal(keptInSummary(demands, [[first], [demands[1]]]), 'they hold all 2 demands word for word');
  assert.equal(keptInSummary([], [['nothing']]), '');
  assert.equal(keptInSummary(demands, []), '');
});

test('demands are marked where they stand, and the pieces are the text', () => {
  const text = 'Hello there.\n- Never touch main.py. It is nice.\n```\nnever run this at all\n```\nYou must test it.';
  const demands = ['Never touch main.py.', 'You must test it.'];
  const pieces = markedPieces(text, demands);
  assert.equal(pieces.map((piece) => piece.text).join(''), text);
  assert.deepEqual(pieces.filter(({ demand }) => demand).map((piece) => piece.text), demands);
});

test('lost items of a kind are shown, in groups of kinds or of compactions', () => {
  const timeline = Timeline.from(smallDocument());
  const item = (number, kind, left, state = 'gone') => ({ number, kind, state, left });
  const items = [
    item(1, 'instruction', { by: 'compaction', compaction: 2 }),
    item(2, 'file', { by: 'clear', compaction: null }),
    item(3, 'file', { by: 'compaction', compaction: 1 }),
    item(4, 'file', null, 'whole'),
    item(5, 'command', null, 'shortened'),
    item(6, 'command', { by: 'compaction', compaction: 1 }, 'summary'),
  ];
  const shown = (filter) => groupItems(timeline, items, filter)
    .map((group) => [group.key, ...group.items.map(({ number }) => number)]);
  assert.deepEqual(shown({ kind: null, by: 'kind' }), [['instruction', 1], ['file', 2, 3], ['command', 5, 6]]);
  assert.deepEqual(shown({ kind: 'file', by: 'kind' }), [['file', 2, 3]]);
  assert.deepEqual(shown({ kind: null, by: 'compaction' }),
    [['compaction 1', 3, 6], ['compaction 2', 1], ['clear', 2], ['in view', 5]]);
  assert.deepEqual(shown({ kind: 'command', by: 'compaction' }), [['compaction 1', 6], ['in view', 5]]);
});

test('a command brings messages back; from a mirror, in a fork', () => {
  const own = { session: 'my work', mirror: null };
  assert.deepEqual(restoreCommand(own, 40), ['eventctx', 'restore', 'my work', 40]);
  assert.deepEqual(restoreCommand(own, 3, 12).slice(2), ['my work', 3, 12]);
  const mirror = { session: '258c7280-ae70-4798-800f-63464d01a85d', mirror: 'x.jsonl' };
  assert.deepEqual(restoreCommand(mirror, 3).slice(4), ['--fork', '258c7280-restored']);
});

test('a word of a command is quoted as a shell takes it back', () => {
  assert.equal(shellQuoted('demo-1.a/b@3:x'), 'demo-1.a/b@3:x');
  assert.equal(shellQuoted('my work'), "'my work'");
  assert.equal(shellQuoted("it's $HOME"), `'it'"'"'s $HOME'`);
  assert.equal(shellQuoted(''), "''");
});

test('a hit is marked at the first request that was sent the message', () => {
  const timeline = Timeline.from(smallDocument());
  const { count } = timeline.requests;
  for (let number = 0; number < timeline.messages.count; number++) {
    const first = Array.from({ length: count }, (_, at) => at).find((at) => numbersIn(timeline, at).has(number));
    assert.equal(firstRequestWith(timeline, number), first ?? -1);
  }
  const all = requestsOfHits(timeline, [5, 0, 5, timeline.messages.count - 1]);
  assert.deepEqual(all, [...new Set(all)].sort((a, b) => a - b));
  assert.ok(!all.includes(-1));
});

test('hits are marked in a text, whatever a pattern would make of them', () => {
  const pieces = hitPieces('a.b "x (y"', 'A.B and aXb and x (y)');
  assert.equal(pieces.map(({ text }) => text).join(''), 'A.B and aXb and x (y)');
  assert.deepEqual(pieces.filter(({ hit }) => hit).map(({ text }) => text), ['A.B', 'x (y']);
});

test('the ways in which requests are known add up to all of them', () => {
  const timeline = Timeline.from(smallDocument());
  assert.deepEqual(requestsByKnown(timeline), [7, 7, 6]);
  const [[reason, requests], ...others] = breaksByReason(timeline);
  assert.deepEqual([reason, others], ['compaction', []]);
  assert.deepEqual(requests, requests.filter((request) => timeline.requests.breaks[request] === 'compaction'));
  assert.equal(requests.length, 3);
});

test('a request of which a cache served less is among those that began differently, as inferred', () => {
  const timeline = Timeline.from(smallDocument());
  const [position] = timeline.requests.position;
  timeline.losses = [{ position, kind: 'cache', tokens: 9, words: '' }, { position, kind: 'prompt', tokens: 9, words: '' }];
  assert.deepEqual(breaksByReason(timeline).at(-1), ['inferred: the cache served less', [0]]);
});

test('equal digests verify what was recorded as it left, and make consistent what was rebuilt', () => {
  assert.equal(provenText([0, 0, 66]), '66 consistent');
  assert.equal(provenText([4, 3, 0]), '7 verified');
  assert.equal(provenText([7, 7, 1_006]), '14 verified, 1,006 consistent');
  const timeline = Timeline.from(smallDocument());
  const first = requestsByKnown(timeline, 2);
  assert.equal(first.reduce((sum, one) => sum + one), 2);
});

test('a change around the messages is told once, against what was last known', () => {
  const document = smallDocument();
  document.requests.system.fill(-1);
  document.requests.system[2] = 100;
  document.requests.system[5] = 100;
  document.requests.system[9] = 120;
  const found = changesOverRequests(Timeline.from(document)).filter(({ what }) => what === 'system');
  assert.deepEqual(found, [
    { request: 2, what: 'system', before: null, after: '100 tokens' },
    { request: 9, what: 'system', before: '100 tokens', after: '120 tokens' },
  ]);
});

test('a view that is not the recorded one is found, and no other', async () => {
  const document = smallDocument();
  const marks = document.messages.kind.map((_, number) => number.toString(16).padStart(8, '0'));
  const first = Timeline.from(document);
  const known = new MessageMarks(marks);
  for (let at = 0; at < first.requests.count; at++) {
    document.requests.digest[at] = await viewDigest(first, at, known);
  }
  document.requests.digest[11] = '00';
  const timeline = Timeline.from(document);
  assert.deepEqual(await checkViews(timeline, marks, () => true), { checked: 20, differ: [11] });
});
