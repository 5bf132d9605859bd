import assert from 'node:assert/strict';
import { test } from 'node:test';

import { cellByKey, spokenCell } from '../../../eventctx/web/page/charts/presence-cell.js';
import { BIN_STATES, binStates, boxesOfStates, summaryBrackets } from '../../../eventctx/web/page/charts/presence-shape.js';
import { presenceRuns } from '../../../eventctx/web/page/timeline/presence.js';
import {
  boxOfRun, cellAt, firstScale, messagesOfRow, offsetToShow, presenceShape, rowLabels, rowScales, rowTop, visibleMessages,
} from '../../../eventctx/web/page/charts/presence-shape.js';
import { STANDINGS } from '../../../eventctx/web/page/timeline/standing.js';
import { Timeline } from '../../../eventctx/web/page/timeline/timeline.js';
import { madeDocument, smallDocument } from './made.mjs';

const SIZE = { width: 500, height: 340 };

function finished(work) {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}

/** The standing of every cell that some rectangle covers. */
function painted(runs) {
  const cells = new Map();
  for (const { number, until, first, last, what } of runs) {
    for (let message = number; message <= until; message += 1) {
      for (let request = first; request <= last; request += 1) {
        assert.ok(!cells.has(`${message} ${request}`), 'painted twice');
        cells.set(`${message} ${request}`, what);
      }
    }
  }
  return cells;
}

test('every cell is painted once, as the standing of its message there', () => {
  const timeline = Timeline.from(madeDocument({ messages: 340, requests: 90, compactions: 6 }));
  const cells = painted(finished(presenceRuns(timeline, [20, 80])));
  for (let request = 20; request <= 80; request += 1) {
    timeline.standings(request).forEach((code, message) => {
      const what = STANDINGS[code];
      assert.equal(cells.get(`${message} ${request}`) ?? 'not_added', what, `#${message} at ${request}`);
    });
  }
});

test('the rectangles of a window are made in pieces', () => {
  const timeline = Timeline.from(smallDocument());
  let pieces = 0;
  for (const _ of presenceRuns(timeline, [0, 19])) pieces += 1;
  assert.equal(pieces, 20);
});

test('a session without messages or requests has no rectangles', () => {
  const timeline = Timeline.from(smallDocument());
  assert.deepEqual(finished(presenceRuns(timeline, [0, -1])), []);
});

test('the first scale shows all messages, the last one is near', () => {
  for (const count of [1, 60, 340, 100_000]) {
    const scales = rowScales(count, 300);
    const [{ perRow, pixels }] = scales;
    assert.ok(Math.ceil(count / perRow) * pixels <= 300.001);
    assert.equal(scales.at(-1).perRow, 1);
    assert.equal(scales.at(-1).pixels, 16);
    const zooms = scales.map((one) => one.pixels / one.perRow);
    assert.deepEqual(zooms, [...zooms].sort((a, b) => a - b));
  }
});

test('a long session begins with the messages of its window, a shorter one with all', () => {
  assert.equal(firstScale(rowScales(340, 300), 340, 300), 0);
  const scales = rowScales(100_000, 300);
  const { perRow, pixels } = scales[firstScale(scales, 8000, 300)];
  assert.ok((8000 / perRow) * pixels <= 300 && perRow < 100_000 / 300);
});

function shapeOf(count, { scale = { perRow: 1, pixels: 10 }, offset = 0, window = [0, 19] } = {}) {
  return presenceShape(SIZE, window, { count, scale, offset });
}

test('a place on the map is found in its cell again', () => {
  const shape = shapeOf(200, { offset: 777 });
  const { columns } = shape;
  const found = cellAt(shape, { x: columns.left + 4.5 * columns.step, y: rowTop(shape, 90) + 1 });
  assert.deepEqual(found, { row: 90, request: 4 });
  assert.equal(cellAt(shape, { x: 200, y: shape.top - 1 }), null);
  assert.equal(cellAt(shapeOf(3), { x: 200, y: 300 }), null);
});

test('only rows that are to be seen are painted, and all of them', () => {
  const shape = shapeOf(200, { offset: 777 });
  assert.deepEqual(visibleMessages(shape), [77, 106]);
  assert.equal(boxOfRun(shape, { number: 0, until: 76, first: 0, last: 19 }), null);
  assert.equal(boxOfRun(shape, { number: 80, until: 80, first: 40, last: 50 }), null);
  const box = boxOfRun(shape, { number: 0, until: 199, first: 0, last: 50 });
  assert.equal(box.row, 77);
  assert.equal(box.rows, 30);
  assert.ok(Math.abs(box.width - shape.columns.width) < 1e-9);
});

test('a row of many messages knows which', () => {
  const shape = shapeOf(105, { scale: { perRow: 10, pixels: 1 } });
  assert.deepEqual(messagesOfRow(shape, 3), [30, 39]);
  assert.deepEqual(messagesOfRow(shape, 10), [100, 104]);
});

test('the map scrolls to a message only if it is out of sight', () => {
  const shape = shapeOf(200, { offset: 500 });
  assert.equal(offsetToShow(shape, 60), 500);
  const offset = offsetToShow(shape, 150);
  const after = shapeOf(200, { offset });
  const [first, last] = visibleMessages(after);
  assert.ok(first < 150 && 150 < last);
});

test('numbers beside the rows are round and apart', () => {
  const labels = rowLabels(shapeOf(200, { offset: 500 }));
  assert.ok(labels.length > 3);
  labels.slice(1).forEach(({ message, y }, at) => {
    assert.ok(y - labels[at].y >= 30);
    assert.equal((message - labels[at].message) % 5, 0);
  });
});

const state = (name) => BIN_STATES.indexOf(name);

test('a row of many messages says whether all, some or none of them are sent', () => {
  const runs = [
    { number: 0, until: 9, first: 0, last: 0, what: 'whole' },
    { number: 0, until: 8, first: 1, last: 1, what: 'summarised' },
    { number: 9, until: 9, first: 1, last: 1, what: 'shortened' },
    { number: 0, until: 9, first: 2, last: 2, what: 'dropped' },
    { number: 10, until: 14, first: 1, last: 2, what: 'whole' },
    { number: 15, until: 19, first: 2, last: 2, what: 'dropped' },
  ];
  const states = binStates(runs, { perRow: 10, firstRow: 0, rows: 2, first: 0, last: 2 });
  assert.deepEqual([...states], ['all', 'few', 'dropped', 'none', 'all', 'half'].map(state));
});

test('rows above and below those to be seen do not count', () => {
  const runs = [{ number: 0, until: 99, first: 5, last: 6, what: 'whole' }];
  const states = binStates(runs, { perRow: 10, firstRow: 4, rows: 1, first: 5, last: 6 });
  assert.deepEqual([...states], ['all', 'all'].map(state));
});

test('equal cells become one box', () => {
  const boxes = boxesOfStates(Uint8Array.from([1, 1, 0, 1, 1, 2]), 3);
  assert.deepEqual(boxes, [
    { state: 1, column: 0, columns: 2, row: 0, rows: 2 },
    { state: 2, column: 2, columns: 1, row: 1, rows: 1 },
  ]);
});

test('a bracket spans what its summary stands for, where it came in', () => {
  const runs = [
    { number: 3, until: 9, first: 4, last: 9, what: 'summarised' },
    { number: 12, until: 20, first: 4, last: 9, what: 'summarised' },
    { number: 0, until: 2, first: 0, last: 9, what: 'summarised' },
    { number: 10, until: 11, first: 4, last: 9, what: 'dropped' },
  ];
  assert.deepEqual(summaryBrackets(runs, 0), [{ request: 4, number: 3, until: 20 }]);
});

const MAP = { perRow: 1, page: 20, messages: 60, first: 5, last: 15, requests: 20 };
const pressed = (key, ctrlKey = false) => ({ key, ctrlKey });

test('arrows move the cell, and stop at the edges of the session', () => {
  const from = { message: 30, request: 10 };
  assert.deepEqual(cellByKey(from, pressed('ArrowDown'), MAP), { message: 31, request: 10 });
  assert.deepEqual(cellByKey(from, pressed('ArrowLeft'), MAP), { message: 30, request: 9 });
  assert.deepEqual(cellByKey(from, pressed('PageUp'), MAP), { message: 10, request: 10 });
  assert.deepEqual(cellByKey({ message: 59, request: 19 }, pressed('ArrowDown'), MAP), { message: 59, request: 19 });
  assert.deepEqual(cellByKey(from, pressed('Home'), MAP), { message: 30, request: 5 });
  assert.deepEqual(cellByKey(from, pressed('End', true), MAP), { message: 59, request: 10 });
  assert.deepEqual(cellByKey({ message: 3, request: 5 }, pressed('Home'), MAP), { message: 3, request: 5 });
  assert.equal(cellByKey(from, pressed('j'), MAP), null);
});

test('a step in a map of many messages goes a row further', () => {
  const next = cellByKey({ message: 30, request: 10 }, pressed('ArrowDown'), { ...MAP, perRow: 8 });
  assert.equal(next.message, 38);
});

test('a cell of many messages says how many of them are sent', () => {
  const timeline = Timeline.from(smallDocument());
  assert.equal(spokenCell(timeline, { message: 2, request: 0 }, 8), '#0 to #7 at 1.1: 3 sent, 5 not there yet');
});
