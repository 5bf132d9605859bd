import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  brushPartAt, clampWindow, moveEdge, moveWindow, WIDEST_WINDOW, windowBetween, windowByKey, windowGrown, windowWith,
} from '../../../eventctx/web/page/core/request-window.js';
import { cliffLabel, cliffMarks, cliffsOf } from '../../../eventctx/web/page/charts/river-shape.js';
import {
  columnAt, columnLeft, columnMiddle, columnsByTime, columnWidth, labelsThatFit, niceTicks, requestColumns,
  requestsToName, tickText, timePasses,
} from '../../../eventctx/web/page/charts/scales.js';

test('the columns of a window share its width, and a place is found in its column again', () => {
  const columns = requestColumns(600, 999, 50, 1200);
  assert.equal(columns.step, 3);
  for (const request of [600, 601, 777, 999]) {
    assert.equal(columnAt(columns, columnLeft(columns, request)), request);
    assert.equal(columnAt(columns, columnLeft(columns, request + 1) - 0.01), request);
  }
});

test('a place beside the columns is in the nearest one', () => {
  const columns = requestColumns(10, 19, 50, 100);
  assert.equal(columnAt(columns, -40), 10);
  assert.equal(columnAt(columns, 5000), 19);
});

test('a few requests do not become bars as wide as a hand', () => {
  assert.ok(requestColumns(0, 1, 0, 1200).step < 80);
});

test('without a request there is no column', () => {
  const columns = requestColumns(0, -1, 50, 1200);
  assert.equal(columnAt(columns, 60), -1);
  assert.equal(columns.width, 0);
});

test('an axis has round numbers up to the highest value', () => {
  assert.deepEqual(niceTicks(68_000, 4), [0, 20_000, 40_000, 60_000]);
  assert.deepEqual(niceTicks(5, 3), [0, 2, 4]);
  assert.deepEqual(niceTicks(33_000, 1), [0, 20_000]);
  assert.deepEqual(niceTicks(1, 4), [0, 1]);
  assert.deepEqual(niceTicks(0, 3), [0]);
  assert.deepEqual(niceTicks(NaN, 3), [0]);
});

test('an axis writes thousands short', () => {
  assert.deepEqual([0, 950, 2000, 20_000, 1_000_000, 1_500_000].map(tickText), ['0', '950', '2k', '20k', '1M', '1.5M']);
});

test('labels never touch, and the important ones are those that stay', () => {
  const labels = [0, 10, 300, 320, 600].map((x, order) => ({ x: x + 20, width: 30, order }));
  const shown = labelsThatFit([...labels].reverse(), 5, 0, 700);
  assert.deepEqual(shown.map(({ order }) => order), [1, 3, 4]);
  shown.slice(1).forEach(({ x, width }, at) => assert.ok(x - width / 2 >= shown[at].x + shown[at].width / 2 + 5));
});

test('labels stay within the chart', () => {
  assert.deepEqual(labelsThatFit([{ x: 5, width: 30 }, { x: 98, width: 30 }], 2, 0, 100), []);
});

test('an axis names the beginnings of turns before other requests', () => {
  const turns = [1, 1, 1, 2, 2, 3, 3, 3];
  const named = requestsToName({ first: 0, last: 7, left: 0, width: 8, step: 1 }, turns);
  assert.deepEqual(named.slice(0, 3), [0, 3, 5]);
  assert.deepEqual([...named].sort((a, b) => a - b), [0, 1, 2, 3, 4, 5, 6, 7]);
});

test('a window has at most as many requests as the river can show', () => {
  assert.deepEqual(clampWindow([0, 4999], 5000), [0, WIDEST_WINDOW - 1]);
  assert.deepEqual(clampWindow([4900, 5300], 5000), [4600, 4999]);
  assert.deepEqual(clampWindow([-20, 10], 5000), [0, 30]);
  assert.deepEqual(clampWindow([0, 99], 20), [0, 19]);
  assert.deepEqual(clampWindow([0, -1], 0), [0, -1]);
});

test('a window that is moved keeps its size, also at the ends', () => {
  assert.deepEqual(moveWindow([100, 199], 50, 5000), [150, 249]);
  assert.deepEqual(moveWindow([100, 199], -500, 5000), [0, 99]);
  assert.deepEqual(moveWindow([100, 199], 9000, 5000), [4900, 4999]);
});

test('an edge that is pulled beyond the widest window takes the other one along', () => {
  assert.deepEqual(moveEdge([1000, 1099], 'first', 900, 5000), [900, 1099]);
  assert.deepEqual(moveEdge([1000, 1099], 'first', 200, 5000), [200, 599]);
  assert.deepEqual(moveEdge([1000, 1099], 'last', 3000, 5000), [2601, 3000]);
});

test('an edge stops at the other one', () => {
  assert.deepEqual(moveEdge([1000, 1099], 'first', 4000, 5000), [1099, 1099]);
  assert.deepEqual(moveEdge([1000, 1099], 'last', 4, 5000), [1000, 1000]);
});

test('a drag over free ground chooses what lies between, in both directions', () => {
  assert.deepEqual(windowBetween(50, 80, 5000), [50, 80]);
  assert.deepEqual(windowBetween(80, 50, 5000), [50, 80]);
  assert.deepEqual(windowBetween(3000, 100, 5000), [2601, 3000]);
  assert.deepEqual(windowBetween(100, 3000, 5000), [100, 499]);
});

test('a window stays where it is while it holds the request, else takes a step that lasts', () => {
  assert.deepEqual(windowWith([100, 499], 300, 5000), [100, 499]);
  const [first, last] = windowWith([100, 499], 500, 5000);
  assert.equal(last - first, 399);
  assert.ok(first < 500 && last > 550);
  assert.deepEqual(windowWith([100, 499], 10, 5000), [0, 399]);
});

test('a window of all requests grows with them, another one stays', () => {
  assert.deepEqual(windowGrown([0, -1], 0, 1), [0, 0]);
  assert.deepEqual(windowGrown([0, 2], 3, 5), [0, 4]);
  assert.deepEqual(windowGrown([0, 397], 398, 403), [3, 402]);
  assert.deepEqual(windowGrown([0, 399], 400, 403), [0, 399]);
  assert.deepEqual(windowGrown([1, 2], 3, 5), [1, 2]);
  assert.deepEqual(windowGrown([0, 1], 3, 5), [0, 1]);
});

test('a pointer near an edge of the window is on the edge', () => {
  const edges = { left: 200, right: 400 };
  assert.deepEqual([194, 204, 300, 396, 405, 450, 100].map((x) => brushPartAt(edges, x, 7)), [
    'first', 'first', 'move', 'last', 'last', 'new', 'new',
  ]);
});

test('in a narrow window the middle moves it, and its edges are held from outside', () => {
  const edges = { left: 200, right: 212 };
  assert.deepEqual([195, 206, 216].map((x) => brushPartAt(edges, x, 7)), ['first', 'move', 'last']);
});

test('every part of the brush follows the keys of a slider', () => {
  assert.deepEqual(windowByKey([100, 199], 'move', 'ArrowRight', 5000), [101, 200]);
  assert.deepEqual(windowByKey([100, 199], 'move', 'End', 5000), [4900, 4999]);
  assert.deepEqual(windowByKey([100, 199], 'first', 'ArrowLeft', 5000), [99, 199]);
  assert.deepEqual(windowByKey([100, 199], 'last', 'PageUp', 5000), [100, 249]);
  assert.deepEqual(windowByKey([100, 199], 'last', 'Home', 5000), [100, 100]);
  assert.equal(windowByKey([100, 199], 'move', 'j', 5000), null);
});

test('a cliff stands before the first request after its compaction', () => {
  const positions = [10, 20, 30];
  const requestAt = (position) => positions.findLastIndex((one) => one <= position);
  const cliffs = cliffsOf(
    [{ position: 15, number: 1 }, { position: 22, number: 0 }, { position: 25, number: 2 }, { position: 40, number: 3 }],
    requestAt,
  );
  assert.deepEqual(cliffs, [
    { request: 1, numbers: [1], tried: 0 },
    { request: 2, numbers: [2], tried: 1 },
    { request: 3, numbers: [3], tried: 0 },
  ]);
  assert.deepEqual(cliffs.map(cliffLabel), ['1', '2', '3']);
});

test('a compaction that was not applied has a mark without a number', () => {
  assert.equal(cliffLabel({ request: 3, numbers: [], tried: 1 }), '');
});

test('marks that would cover one another become one, with the numbers of all', () => {
  const cliffs = [1, 2, 3, 9].map((request) => ({ request, numbers: [request], tried: 0 }));
  const marks = cliffMarks(cliffs, (request) => request * 3, 8);
  assert.deepEqual(marks.map(({ x, cliff }) => [x, cliffLabel(cliff)]), [[3, '1–3'], [27, '9']]);
  assert.deepEqual(cliffs[0].numbers, [1]);
});

test('by time a request is as wide as it took to the next, and every place is of one request', () => {
  const times = [0, 1000, 2000, 2000, 7000, 6000, 11000];
  const columns = columnsByTime(requestColumns(1, 6, 50, 600), times, 600);
  assert.equal(columnLeft(columns, 1), 50);
  assert.ok(Math.abs(columnWidth(columns, 3) - 5 * columnWidth(columns, 1)) < 1e-9);
  assert.equal(columnWidth(columns, 2), 0);
  assert.equal(columnWidth(columns, 4), 0, 'a clock that was set back takes no room');
  assert.equal(columnLeft(columns, 7), 650);
  for (const request of [1, 3, 5, 6]) assert.equal(columnAt(columns, columnMiddle(columns, request)), request);
  assert.equal(columnAt(columns, 0), 1);
  assert.equal(columnAt(columns, 999), 6);
});

test('requests without times stand by number', () => {
  const even = requestColumns(0, 3, 50, 600);
  assert.equal(columnsByTime(even, [0, 0, 0, 0], 600), even);
  assert.equal(timePasses([5, 5, 5], [0, 2]), false);
  assert.equal(timePasses([5, 5, 6], [0, 2]), true);
});
