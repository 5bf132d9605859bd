import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  BAND_NAMES, cachedShare, cellWords, requestWords, spokenRequest,
} from '../../../eventctx/web/page/charts/request-words.js';
import { RiverRows } from '../../../eventctx/web/page/charts/river-rows.js';
import { barOf, riverShape, riverTop, stackTops, tokensToY } from '../../../eventctx/web/page/charts/river-shape.js';
import { Timeline } from '../../../eventctx/web/page/timeline/timeline.js';
import { madeDocument, smallDocument } from './made.mjs';

const small = () => Timeline.from(smallDocument());

function filled(timeline) {
  const rows = new RiverRows(timeline);
  for (const _ of rows.fill(0, timeline.requests.count - 1));
  return rows;
}

test('the bands of a request add up to its size', () => {
  const timeline = small();
  const rows = filled(timeline);
  for (let request = 0; request < timeline.requests.count; request += 1) {
    const bands = rows.of(request);
    assert.equal(bands.length, BAND_NAMES.length);
    assert.equal(bands.reduce((sum, one) => sum + one, 0), timeline.requests.total[request]);
  }
});

test('the numbers are made in pieces, and none twice', () => {
  const timeline = Timeline.from(madeDocument({ messages: 400, requests: 100, compactions: 4 }));
  const rows = new RiverRows(timeline);
  let pieces = 0;
  for (const _ of rows.fill(10, 90)) pieces += 1;
  assert.ok(pieces > 1);
  assert.ok(rows.has(10, 90));
  assert.ok(!rows.has(9, 90));
  let again = 0;
  for (const _ of rows.fill(10, 92)) again += 1;
  assert.equal(again, 1);
});

test('a report that comes late is seen', () => {
  const timeline = small();
  const rows = filled(timeline);
  const before = rows.of(3)[0];
  timeline.requests.beside[3] = before + 500;
  timeline.version.value += 1;
  assert.ok(!rows.has(3, 3));
  for (const _ of rows.fill(3, 3));
  assert.equal(rows.of(3)[0], before + 500);
});

test('what is not known of a request, or below nothing, takes no room', () => {
  assert.deepEqual(stackTops([-1, 10, 0, 5]), [0, 10, 10, 15]);
});

test('the highest request stands below the top, nothing stands at the base', () => {
  const { requests } = small();
  const window = [0, requests.count - 1];
  const shape = riverShape({ width: 1000, height: 300 }, window, riverTop(requests, window), true);
  const most = Math.max(...requests.total);
  assert.ok(tokensToY(shape, most) > shape.top);
  assert.equal(tokensToY(shape, 0), shape.base);
  assert.ok(shape.top < shape.base && shape.base < shape.known && shape.known < shape.names);
  assert.ok(shape.names < shape.cacheTop && shape.cacheTop < shape.cacheBase && shape.cacheBase <= 300);
});

test('where no provider says what was read from cache, the stacks have the room', () => {
  const [withLane, without] = [true, false].map((hasCache) => riverShape({ width: 1000, height: 300 }, [0, 9], 100, hasCache));
  assert.ok(without.base > withLane.base);
  assert.equal(without.cacheTop, without.cacheBase);
});

test('the scale stays as the window moves, unless its requests were too low to be seen', () => {
  const total = [100, 90, 80, 100, 20, 21, 22];
  const requests = { total, budget: total.map(() => -1), count: total.length };
  assert.equal(riverTop(requests, [0, 1]), riverTop(requests, [1, 2]));
  assert.ok(riverTop(requests, [4, 6]) < 30);
});

test('a budget is in the picture where it does not flatten the requests', () => {
  const requests = { total: [100, 90], budget: [120, 120], count: 2 };
  assert.ok(riverTop(requests, [0, 1]) >= 120);
  assert.ok(riverTop({ ...requests, budget: [9000, 9000] }, [0, 1]) < 200);
});

test('bars meet without a seam when they are narrow, and stand apart when they are wide', () => {
  const sharp = Math.round;
  const narrow = { first: 0, last: 9, left: 0, width: 25, step: 2.5 };
  const [left, width] = barOf(narrow, 3, sharp);
  assert.equal(left + width, barOf(narrow, 4, sharp)[0]);
  const wide = { first: 0, last: 9, left: 0, width: 200, step: 20 };
  assert.deepEqual(barOf(wide, 1, sharp), [20, 19]);
});

test('a request says its size, who counted it, its share from the cache and how it is known', () => {
  const timeline = small();
  const request = Array.from(timeline.requests.estimated).indexOf(0);
  const said = requestWords(timeline, request);
  assert.match(said, /^\d+\.\d+: [\d,]+ tokens, counted by the provider · \d+ % read from cache · budget [\d,]+ · observed$/);
  const estimated = Array.from(timeline.requests.estimated).indexOf(1);
  assert.match(requestWords(timeline, estimated), /~[\d,]+ tokens, estimated · budget/);
  assert.equal(requestWords(timeline, -1), 'No request yet');
});

test('a request says a loss that is inferred, and none of another request', () => {
  const whole = smallDocument();
  const position = whole.requests.position[5];
  const losses = [{ position, kind: 'prompt', tokens: 4012, words: '2.1: …' }];
  const timeline = Timeline.from({ ...whole, losses });
  assert.equal(timeline.lossAt(5), losses[0]);
  assert.match(requestWords(timeline, 5), / · ~4,012 tokens lost without a record \(inferred\)$/);
  assert.equal(timeline.lossAt(4), null);
  assert.doesNotMatch(requestWords(timeline, 4), /inferred/);
  const cached = Timeline.from({ ...whole, losses: [{ ...losses[0], kind: 'cache' }] });
  assert.doesNotMatch(requestWords(cached, 5), /inferred/);
});

test('who hears the river hears the bands that hold tokens', () => {
  const timeline = small();
  const said = spokenRequest(timeline, 5, filled(timeline).of(5));
  assert.match(said, /beside messages [\d,]+, system [\d,]+, person [\d,]+/);
  assert.doesNotMatch(said, /summaries/);
});

test('a share is between nothing and all, and unknown where the provider did not say', () => {
  assert.equal(cachedShare({ cached: [50], total: [200] }, 0), 0.25);
  assert.equal(cachedShare({ cached: [300], total: [200] }, 0), 1);
  assert.equal(cachedShare({ cached: [-1], total: [200] }, 0), null);
});

test('a cell says message, kind, standing, request, compaction and reason', () => {
  const timeline = small();
  const { changes, requests } = timeline;
  const at = Array.from(changes.what).indexOf(3); // dropped
  const message = changes.first[at];
  const request = Array.from(requests.position).findIndex((position) => position > changes.position[at]);
  const said = cellWords(timeline, message, request);
  assert.match(said, new RegExp(`^#${message}, \\w+, dropped at \\d+\\.\\d+ by compaction \\d+ \\(old_round\\)$`));
});

test('a cell of a message that was in view has no reason', () => {
  assert.equal(cellWords(small(), 0, 0), '#0, system, sent at 1.1');
});

test('a reason from a foreign store cannot turn the line around', () => {
  const made = smallDocument();
  made.reasons[0].code = 'old\u202eround';
  const timeline = Timeline.from(made);
  const at = Array.from(timeline.changes.what).indexOf(3);
  const said = cellWords(timeline, timeline.changes.first[at], timeline.requests.count - 1);
  assert.doesNotMatch(said, /\u202e/);
});
