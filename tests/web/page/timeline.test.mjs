import assert from 'node:assert/strict';
import { test } from 'node:test';

import { envelopeOf } from '../../../eventctx/web/page/charts/overview-paint.js';
import { groupOf, LOG_GROUPS, SCREEN_GROUPS } from '../../../eventctx/web/page/timeline/groups.js';
import { packDocument, packedBuffers, withSums } from '../../../eventctx/web/page/timeline/packing.js';
import { presenceRuns } from '../../../eventctx/web/page/timeline/presence.js';
import { CHANGE_KINDS, STANDINGS } from '../../../eventctx/web/page/timeline/standing.js';
import { Timeline } from '../../../eventctx/web/page/timeline/timeline.js';
import { chaos, documentOf, seeded, slowly } from './chaos.mjs';
import { smallDocument } from './made.mjs';

const SEEDS = Array.from({ length: 300 }, (_, seed) => seed);

/** All that a screen reads of a timeline. */
function everything(timeline) {
  const requests = Array.from({ length: timeline.requests.count }, (_, request) => ({
    name: timeline.name(request),
    view: Array.from(timeline.view(request)),
    entries: Array.from(timeline.view(request), (id) => timeline.entry(id, request)),
    standings: Array.from(timeline.standings(request)),
    sums: Array.from(timeline.sums(request)),
    counted: Array.from(timeline.sumTable.of(request)),
    words: timeline.wordsOutOfView(request),
    compactions: timeline.compactionsBetween(request - 1, request),
  }));
  const { session, head, digest, records, messages, changes, compactions, extras, turns } = timeline;
  const last = timeline.requests.count - 1;
  return {
    session, head, digest, records, messages, changes, compactions, extras, turns, requests,
    columns: timeline.requests,
    envelope: envelopeOf(timeline, 7),
    presence: drained(presenceRuns(timeline, [0, last])),
  };
}

/** What a generator comes to in the end. */
function drained(work) {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}

function cells(runs) {
  const found = [];
  for (const { number, until, first, last, what } of runs) {
    for (let message = number; message <= until; message++) {
      for (let request = first; request <= last; request++) found.push(`${message} ${request} ${what}`);
    }
  }
  return found.sort();
}

test('views, standings and sums are those of a slow reading of the records', () => {
  for (const seed of SEEDS) {
    const records = chaos(seeded(seed));
    const timeline = Timeline.from(documentOf(records, 0, records.length));
    const said = slowly(records);
    assert.equal(timeline.messages.count, said.messages.length);
    assert.equal(timeline.requests.count, said.requests.length);
    // From the end, so that no view is built of the one before it.
    for (let request = said.requests.length - 1; request >= 0; request--) {
      const { view, standings, counted } = said.requests[request];
      const place = `seed ${seed}, request ${request}`;
      assert.deepEqual(Array.from(timeline.view(request)), view, place);
      assert.deepEqual(Array.from(timeline.standings(request), (code) => STANDINGS[code]), standings, place);
      assert.deepEqual(Array.from(timeline.sumTable.of(request)), counted, place);
      const sums = timeline.sums(request).reduce((sum, tokens) => sum + tokens, 0);
      assert.equal(sums, counted.some((tokens) => tokens > 0) ? timeline.requests.messages[request] : 0, place);
    }
  }
});

test('the presence map covers every standing of its window once', () => {
  for (const seed of SEEDS) {
    const random = seeded(seed);
    const records = chaos(random);
    const timeline = Timeline.from(documentOf(records, 0, records.length));
    const { requests } = slowly(records);
    if (requests.length === 0) continue;
    const left = random.below(requests.length);
    const right = left + random.below(requests.length - left);
    const wanted = [];
    requests.slice(left, right + 1).forEach(({ standings }, column) => {
      standings.forEach((what, row) => {
        if (what !== 'not_added') wanted.push(`${row} ${left + column} ${what}`);
      });
    });
    assert.deepEqual(cells(drained(presenceRuns(timeline, [left, right]))), wanted.sort(), `seed ${seed}`);
  }
});

test('a document in any pieces is the same timeline', () => {
  for (const seed of SEEDS) {
    const random = seeded(seed);
    const records = chaos(random);
    const whole = Timeline.from(documentOf(records, 0, records.length));
    let end = random.below(records.length + 1);
    const pieces = Timeline.from(documentOf(records, 0, end));
    while (end < records.length) {
      if (random.below(2)) everything(pieces); // what was derived before must not stay
      const next = Math.min(records.length, end + 1 + random.below(9));
      pieces.append(documentOf(records, end, next));
      end = next;
    }
    assert.deepEqual(everything(pieces), everything(whole), `seed ${seed}`);
  }
});

test('rows of earlier documents read otherwise once a later one says so', () => {
  const records = chaos(seeded(4));
  const timeline = Timeline.from(documentOf(records, 0, records.length));
  const last = timeline.requests.count - 1;
  const before = timeline.version.value;
  timeline.append({
    ...documentOf([...records], records.length, records.length),
    updated: {
      requests: { [last]: { total: 77, messages: 70, estimated: 0 } },
      compactions: { 0: { after: 12, after_estimated: false } },
    },
  });
  assert.equal(timeline.requests.total[last], 77);
  assert.equal(timeline.sums(last).reduce((sum, tokens) => sum + tokens, 0), 70);
  assert.equal(timeline.compactions[0].after, 12);
  assert.equal(timeline.version.value, before + 1);
});

test('words out of view name the change and the compaction that took them out', () => {
  const timeline = Timeline.from(smallDocument());
  let compacted = 0;
  for (let request = 0; request < timeline.requests.count; request++) {
    for (const { number, standing, change, compaction } of timeline.wordsOutOfView(request)) {
      const said = timeline.standing(number, request);
      assert.deepEqual([said.what, said.change], [standing, change]);
      const { position } = timeline.compactions[compaction];
      assert.equal(position, timeline.changes.position[change]);
      assert.ok(position < timeline.requests.position[request]);
      compacted++;
    }
  }
  assert.ok(compacted > 0);
});

test('words fell behind the last request that was made before they were taken out', () => {
  let again = 0;
  for (const seed of SEEDS) {
    const records = chaos(seeded(seed));
    const timeline = Timeline.from(documentOf(records, 0, records.length));
    const { what, first, last, position } = timeline.changes;
    for (const { number, fell, change } of timeline.wordsOutOfView(timeline.requests.count - 1)) {
      const restored = Array.from(what.keys()).findLast((at) =>
        CHANGE_KINDS[what[at]] === 'restored' && first[at] <= number && number <= last[at]);
      if (restored === undefined || change < restored) continue;
      assert.ok(fell > timeline.requestAt(position[restored]), `seed ${seed}, message ${number}`);
      again++;
    }
  }
  assert.ok(again > 0);
});

test('calls that a later document names are known beside those of the first', () => {
  const records = chaos(seeded(4));
  const timeline = Timeline.from({ ...documentOf(records, 0, 5), calls: { one: 1 } });
  timeline.append({ ...documentOf(records, 5, 9), calls: { two: 2 } });
  assert.deepEqual(timeline.calls, { one: 1, two: 2 });
});

test('a turn that goes on takes the place of what was known of it', () => {
  const records = chaos(seeded(4));
  const turn = { number: 1, turn_id: 't', first: 0, last: 3, time: 1 };
  const timeline = Timeline.from({ ...documentOf(records, 0, 5), turns: [turn] });
  timeline.append({ ...documentOf(records, 5, 9), turns: [{ ...turn, last: 8 }, { ...turn, number: 2, first: 8 }] });
  assert.deepEqual(timeline.turns.map(({ number, last }) => [number, last]), [[1, 8], [2, 3]]);
});

test('a document that does not go on from the head is refused', () => {
  const records = chaos(seeded(4));
  const timeline = Timeline.from(documentOf(records, 0, 5));
  assert.throws(() => timeline.append(documentOf(records, 6, 8)), /expected chaos after @4, found chaos after @5/);
  assert.throws(
    () => timeline.append({ ...documentOf(records, 5, 8), session: 'other' }),
    /expected chaos after @4, found other after @4/,
  );
  assert.throws(() => Timeline.from(documentOf(records, 6, 8)), /expected a whole document/);
  assert.throws(() => Timeline.from({ ...documentOf(records, 0, 5), format: 2 }), /expected a document of format 1/);
  assert.equal(timeline.head, 4);
});

test('what a worker packs, sums up and hands over is the same timeline, and grows', () => {
  const records = chaos(seeded(9));
  const end = Math.floor(records.length / 2);
  const document = documentOf(records, 0, end);
  const packed = withSums(packDocument(document));
  const moved = Timeline.from(structuredClone(packed, { transfer: packedBuffers(packed) }));
  assert.equal(packed.messages.position.length, 0);
  assert.deepEqual(everything(moved), everything(Timeline.from(document)));
  moved.append(documentOf(records, end, records.length));
  assert.deepEqual(everything(moved), everything(Timeline.from(documentOf(records, 0, records.length))));
});

test('requests are found by position, and are named as on the command line', () => {
  const timeline = Timeline.from(smallDocument());
  const { position, count } = timeline.requests;
  assert.equal(timeline.requestAt(position[0] - 1), -1);
  assert.equal(timeline.requestAt(position[3]), 3);
  assert.equal(timeline.requestAt(position[3] + 1), 3);
  assert.equal(timeline.requestAt(1e9), count - 1);
  assert.equal(timeline.name(0), '1.1');
  assert.equal(timeline.previousOf(0), -1);
  timeline.requests.turn[0] = -1;
  assert.equal(timeline.name(0), `@${position[0]}`);
});

test('the envelope has the least and the greatest total of every column', () => {
  const timeline = Timeline.from(smallDocument());
  const { total } = timeline.requests;
  const { min, max } = envelopeOf(timeline, 5);
  for (let column = 0; column < 5; column++) {
    const mine = Array.from(total.subarray(column * 4, column * 4 + 4));
    assert.deepEqual([min[column], max[column]], [Math.min(...mine), Math.max(...mine)]);
  }
  assert.equal(envelopeOf(timeline, 100).max.every((one) => one >= 0), true);
});

test('the groups of the screen hold all groups of the log', () => {
  assert.deepEqual(
    LOG_GROUPS.map((name, code) => `${name} ${SCREEN_GROUPS[groupOf(code)]}`),
    [
      'system system', 'human person', 'user system', 'assistant model', 'result result', 'other system',
      'inserted summary', 'made_up summary',
    ],
  );
});
