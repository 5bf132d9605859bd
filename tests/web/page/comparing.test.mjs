import assert from 'node:assert/strict';
import { test } from 'node:test';

import { listDiff, textDiff, withoutTheSame } from '../../../eventctx/web/page/compare/text-diff.js';
import {
  changesAround, commonPrefix, pairedViews, segmentsOfPairs,
} from '../../../eventctx/web/page/compare/view-pairs.js';
import { Timeline } from '../../../eventctx/web/page/timeline/timeline.js';
import { chaos, documentOf, seeded } from './chaos.mjs';
import { smallDocument } from './made.mjs';

const joined = (steps, without) =>
  steps.filter(({ fate }) => fate !== without).map(({ text }) => text);

/** The length of the longest common subsequence, by the plain table. */
function longestCommon(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = 1; i <= a.length; i++) {
    for (let j = 1; j <= b.length; j++) {
      table[i][j] = a[i - 1] === b[j - 1]
        ? table[i - 1][j - 1] + 1 : Math.max(table[i - 1][j], table[i][j - 1]);
    }
  }
  return table[a.length][b.length];
}

test('a diff holds both lists, and as much in common as there is', () => {
  const random = seeded(7);
  const list = () => Array.from({ length: random.below(12) }, () => random.one('abc'));
  for (let round = 0; round < 3000; round++) {
    const [before, after] = [list(), list()];
    const steps = listDiff(before, after);
    assert.deepEqual(joined(steps, 'new'), before);
    assert.deepEqual(joined(steps, 'gone'), after);
    assert.equal(steps.filter(({ fate }) => fate === 'same').length, longestCommon(before, after));
  }
});

test('texts that have nothing in common are shown one after the other, in good time', () => {
  const lines = (word) => Array.from({ length: 20_000 }, (_, at) => `${word} ${at}`).join('\n');
  const diff = textDiff(lines('before'), lines('after'));
  assert.equal(diff.length, 40_000);
  assert.equal(diff[0].fate, 'gone');
  assert.equal(diff.at(-1).fate, 'new');
});

test('a changed line has its words marked', () => {
  const [gone, fresh] = textDiff('the quick brown fox', 'the quick red fox');
  assert.deepEqual(gone.pieces.map(({ fate, text }) => [fate, text]),
    [['same', 'the quick '], ['gone', 'brown'], ['same', ' fox']]);
  assert.deepEqual(fresh.pieces.map(({ fate, text }) => [fate, text]),
    [['same', 'the quick '], ['new', 'red'], ['same', ' fox']]);
});

test('equal lines far from a difference are left out, and counted', () => {
  const before = Array.from({ length: 30 }, (_, at) => `line ${at}`);
  const after = before.with(15, 'quite another one');
  const kept = withoutTheSame(textDiff(before.join('\n'), after.join('\n')), 2);
  assert.deepEqual(kept.filter((line) => 'skipped' in line), [{ skipped: 13 }, { skipped: 12 }]);
  assert.equal(kept.length, 2 + 2 + 2 + 2);
});

function wildTimeline(seed) {
  const records = chaos(seeded(seed));
  return Timeline.from(documentOf(records, 0, records.length));
}

/** Holds a comparison to the two views that it is of. */
function checkPairs(timeline, a, b) {
  const pairs = pairedViews(timeline, a, b);
  const ids = (side) => pairs.flatMap((pair) => (pair[side] === null ? [] : [pair[side].id]));
  const sorted = (view) => Array.from(view).sort((one, other) => one - other);
  assert.deepEqual(sorted(ids('a')), sorted(timeline.view(a)));
  assert.deepEqual(sorted(ids('b')), sorted(timeline.view(b)));
  if (!pairs.some(({ moved }) => moved)) {
    assert.deepEqual(ids('a'), Array.from(timeline.view(a)));
    assert.deepEqual(ids('b'), Array.from(timeline.view(b)));
  }
  for (const pair of pairs) {
    assert.equal(pair.side, pair.a === null ? 'b' : pair.b === null ? 'a' : 'both');
    if (pair.side === 'both') assert.equal(pair.changed, pair.a.id !== pair.b.id);
  }
  assert.equal(segmentsOfPairs(pairs).reduce((sum, one) => sum + one.pairs.length, 0), pairs.length);
}

test('a comparison holds every entry of both requests once, in order', () => {
  const timeline = Timeline.from(smallDocument());
  for (let a = 0; a < timeline.requests.count; a++) {
    for (let b = 0; b < timeline.requests.count; b++) checkPairs(timeline, a, b);
  }
  for (let seed = 0; seed < 40; seed++) {
    const wild = wildTimeline(seed);
    for (let b = 1; b < wild.requests.count; b++) checkPairs(wild, b - 1, b);
  }
});

test('a message that was shortened in between stands in both, and is changed', () => {
  let seen = 0;
  for (let seed = 0; seed < 40; seed++) {
    const timeline = wildTimeline(seed);
    for (let b = 1; b < timeline.requests.count; b++) {
      const before = timeline.view(b - 1);
      for (const pair of pairedViews(timeline, b - 1, b)) {
        if (pair.b?.kind !== 'shortened' || !before.includes(pair.b.number)) continue;
        seen++;
        assert.equal(pair.side, 'both');
        assert.equal(pair.changed, true);
        assert.equal(pair.a.id, pair.b.number);
      }
    }
  }
  assert.ok(seen > 10);
});

test('the common prefix is what the request kept, and ends at the first other entry', () => {
  const timeline = Timeline.from(smallDocument());
  for (let b = 1; b < timeline.requests.count; b++) {
    const { entries, tokens, allEntries, allTokens } = commonPrefix(timeline, b - 1, b);
    const [before, after] = [timeline.view(b - 1), timeline.view(b)];
    assert.deepEqual(before.subarray(0, entries), after.subarray(0, entries));
    assert.notEqual(before[entries] ?? null, after[entries] ?? 'the end');
    assert.equal(allEntries, after.length);
    assert.ok(tokens <= allTokens);
    if (timeline.requests.breaks[b] === '') assert.equal(entries, before.length);
  }
});

test('of what is around the messages, only a change of what is known of both is told', () => {
  const document = smallDocument();
  document.models.push('made-model-2');
  document.requests.model[3] = 1;
  document.requests.system[3] = 1300;
  document.requests.tools[3] = -1;
  const timeline = Timeline.from(document);
  assert.deepEqual(changesAround(timeline, 1, 2), []);
  assert.deepEqual(changesAround(timeline, 2, 3), [
    { what: 'model', before: 'made-model-1', after: 'made-model-2' },
    { what: 'system', before: '1,200 tokens', after: '1,300 tokens' },
  ]);
});

test('a request is named by turn and iteration, by its turn, or by a position', () => {
  const timeline = Timeline.from(smallDocument());
  const { count, position, turn } = timeline.requests;
  for (let request = 0; request < count; request++) {
    assert.equal(timeline.requestNamed(` ${timeline.name(request)} `), request);
    assert.equal(timeline.requestNamed(`@${position[request]}`), request);
  }
  assert.equal(timeline.requestNamed('2'), turn.lastIndexOf(2));
  assert.equal(timeline.requestNamed('9.9'), -1);
  assert.equal(timeline.requestNamed('the last'), -1);
});
