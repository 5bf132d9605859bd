import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { forgetWaitingAddress, pushAddress, replaceAddress } from '../../../eventctx/web/page/core/place.js';

/** What a browser's history does with its last entry. */
let entries;

beforeEach((context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  entries = ['/'];
  globalThis.history = {
    replaceState: (_state, _title, address) => (entries[entries.length - 1] = address),
    pushState: (_state, _title, address) => entries.push(address),
  };
});

/** Long enough for everything that waits. */
const wait = (context) => {
  context.mock.timers.tick(1000);
  context.mock.timers.tick(1000);
};

test('a single place is written at once', (context) => {
  replaceAddress('/s/demo?at=3');
  assert.deepEqual(entries, ['/s/demo?at=3']);
  wait(context);
});

test('of hundreds in a row the browser gets the first and the last', (context) => {
  let written = 0;
  const { replaceState } = globalThis.history;
  globalThis.history.replaceState = (...given) => {
    written += 1;
    replaceState(...given);
  };
  for (let at = 0; at < 300; at += 1) replaceAddress(`/s/demo?at=${at}`);
  wait(context);
  assert.equal(written, 2);
  assert.deepEqual(entries, ['/s/demo?at=299']);
});

test('a step for the back button leaves behind where one was', (context) => {
  for (const at of [1, 2, 3]) replaceAddress(`/s/demo?at=${at}`);
  pushAddress('/s/demo/lost?at=3');
  wait(context);
  assert.deepEqual(entries, ['/s/demo?at=3', '/s/demo/lost?at=3']);
});

test('who went back is not sent forward again', (context) => {
  for (const at of [1, 2, 3]) replaceAddress(`/s/demo?at=${at}`);
  entries = ['/s/other'];
  forgetWaitingAddress();
  wait(context);
  assert.deepEqual(entries, ['/s/other']);
});
