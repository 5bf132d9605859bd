// Signals, the place in the address, keys, and the order of the sessions.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { nameOfKey, shownKey } from '../../../eventctx/web/page/core/keys.js';
import { formatPlace, parsePlace, placeAfter } from '../../../eventctx/web/page/core/place.js';
import { tabWith } from '../../../eventctx/web/page/parts/filter-fields.js';
import {
  isReadable, knownAs, labelOf, listedSessions, listOptions, tabOrderedBy,
} from '../../../eventctx/web/page/screens/session-rows.js';
import { batch, computed, effect, signal, untracked } from '../../../eventctx/web/page/core/signals.js';

test('an effect runs at once, and again after what it read changed', () => {
  const a = signal(1);
  const b = signal(10);
  const seen = [];
  const stop = effect(() => void seen.push(a.value < 3 ? a.value : b.value));
  b.value = 11; // was not read
  a.value = 1; // did not change
  a.value = 3;
  b.value = 12;
  stop();
  a.value = 4;
  assert.deepEqual(seen, [1, 11, 12]);
});

test('a batch runs effects once, in the order in which they were made', () => {
  const a = signal(1);
  const b = signal(1);
  const seen = [];
  effect(() => void seen.push(`first ${a.value + b.value}`));
  effect(() => void seen.push(`second ${b.value}`));
  seen.length = 0;
  batch(() => {
    b.value = 2;
    batch(() => (a.value = 5));
    assert.deepEqual(seen, []);
  });
  assert.deepEqual(seen, ['first 7', 'second 2']);
});

test('a computed is made when it is read, once for each change', () => {
  const a = signal(2);
  let made = 0;
  const doubled = computed(() => {
    made++;
    return a.value * 2;
  });
  const sum = computed(() => doubled.value + a.value);
  assert.equal(made, 0);
  const seen = [];
  effect(() => void seen.push(sum.value));
  a.value = 3;
  assert.equal(sum.peek(), 9);
  assert.deepEqual(seen, [6, 9]);
  assert.equal(made, 2);
});

test('an effect does not run for a computed that came out the same', () => {
  const a = signal(1);
  const isLarge = computed(() => a.value > 10);
  let runs = 0;
  effect(() => {
    isLarge.value;
    runs++;
  });
  a.value = 2;
  a.value = 3;
  assert.equal(runs, 1);
  a.value = 11;
  assert.equal(runs, 2);
});

test('an effect cleans up before it runs again and at its end', () => {
  const a = signal(1);
  const seen = [];
  const stop = effect(() => {
    const now = a.value;
    return () => seen.push(now);
  });
  a.value = 2;
  stop();
  stop();
  assert.deepEqual(seen, [1, 2]);
});

test('an effect may end another, or itself, while effects run', () => {
  const a = signal(0);
  const seen = [];
  let stopSecond = () => {};
  effect(() => {
    if (a.value === 1) stopSecond();
  });
  stopSecond = effect(() => void seen.push(a.value));
  const stopThird = effect(() => {
    if (a.value === 1) stopThird();
    else seen.push(`third ${a.value}`);
  });
  a.value = 1;
  a.value = 2;
  assert.deepEqual(seen, [0, 'third 0']);
});

test('what is read untracked or by peek does not run an effect again', () => {
  const a = signal(1);
  const b = signal(1);
  let runs = 0;
  effect(() => {
    runs++;
    untracked(() => a.value);
    b.peek();
  });
  a.value = 2;
  b.value = 2;
  assert.equal(runs, 1);
});

test('an error in one effect reaches the caller, after the others ran', () => {
  const a = signal(1);
  const seen = [];
  effect(() => {
    if (a.value === 2) throw new Error('broken');
  });
  effect(() => void seen.push(a.value));
  assert.throws(() => (a.value = 2), /broken/);
  a.value = 3;
  assert.deepEqual(seen, [1, 2, 3]);
});

test('a computed that failed is made again when what it read changes', () => {
  const a = signal(1);
  const half = computed(() => {
    if (a.value % 2 === 1) throw new Error('odd');
    return a.value / 2;
  });
  const seen = [];
  effect(() => {
    try {
      seen.push(half.value);
    } catch {
      seen.push('odd');
    }
  });
  a.value = 4;
  a.value = 5;
  a.value = 6;
  assert.deepEqual(seen, ['odd', 2, 'odd', 3]);
});

test('an effect that changes what it reads settles, or is told so', () => {
  const a = signal(5);
  effect(() => {
    if (a.value > 0) a.value--;
  });
  assert.equal(a.value, 0);
  const b = signal(0);
  assert.throws(() => effect(() => void (b.value += 1)), /again and again/);
});

const NOWHERE = { at: null, message: null, partner: null, tab: '', query: '' };
const AT_HOME = { screen: 'sessions', session: null, ...NOWHERE };

test('a place is written as an address that reads as the same place', () => {
  const names = [
    'demo', 'a b', '5f0c.agent-a1', 'ä/ö', 'x?y#z&q=1', '100%', '%2F', 'lost', '💡', '...', '<b>',
    "it's", 'a+b', 'a;b=c,d', '\u202enoitcerid',
  ];
  for (const session of names) {
    for (const screen of ['session', 'lost', 'compare', 'search', 'integrity']) {
      const to = { screen, session, at: 336, message: 40, partner: 0, tab: 'why', query: 'a&b=ü #1' };
      assert.deepEqual(parsePlace(formatPlace(to)), to);
      const bare = { screen, session, ...NOWHERE };
      assert.deepEqual(parsePlace(formatPlace(bare)), bare);
      const url = new URL(formatPlace(to), 'http://127.0.0.1:8000');
      assert.deepEqual(parsePlace(url.pathname + url.search), to, 'as a browser keeps it');
    }
  }
  assert.equal(
    formatPlace({ screen: 'lost', session: 'demo', ...NOWHERE, at: 336, message: 40 }),
    '/s/demo/lost?at=336&msg=40',
  );
  assert.deepEqual(parsePlace(formatPlace({ ...AT_HOME, query: 'x' })), { ...AT_HOME, query: 'x' });
  const everywhere = { ...AT_HOME, screen: 'search', query: 'x' };
  assert.equal(formatPlace(everywhere), '/search?q=x');
  assert.deepEqual(parsePlace('/search?q=x'), everywhere);
});

test('an address that nobody made leads somewhere, too', () => {
  assert.deepEqual(parsePlace('/s/100%/lost'), AT_HOME);
  assert.deepEqual(parsePlace('/s/'), AT_HOME);
  assert.deepEqual(parsePlace(''), AT_HOME);
  assert.deepEqual(parsePlace('/elsewhere?at=1'), AT_HOME);
  const demo = { screen: 'session', session: 'demo', ...NOWHERE };
  assert.deepEqual(parsePlace('/s/demo/__proto__?at=-1&msg=1e9&cmp=0x10'), demo);
  assert.deepEqual(parsePlace('/s/demo?at=99999999999999999999&msg= 4'), demo);
  assert.equal(formatPlace({ ...demo, session: 'a\ud800b' }), '/s/a%EF%BF%BDb');
});

test('another session forgets what belongs to the one before', () => {
  const here = { screen: 'lost', session: 'demo', at: 7, message: 3, partner: 2, tab: 't', query: 'q' };
  assert.deepEqual(placeAfter(here, { message: 4 }), { ...here, message: 4 });
  assert.deepEqual(placeAfter(here, { session: 'demo', tab: '' }), { ...here, tab: '' });
  assert.deepEqual(placeAfter(here, { session: 'other', at: 5 }), {
    screen: 'session', session: 'other', ...NOWHERE, at: 5,
  });
  assert.deepEqual(placeAfter(here, { session: null }), AT_HOME);
  assert.deepEqual(placeAfter({ ...here, tab: 'why' }, { screen: 'search' }), { ...here, screen: 'search', tab: '' });
  assert.deepEqual(placeAfter(here, { session: null, screen: 'search' }), { ...AT_HOME, screen: 'search' });
  assert.deepEqual(placeAfter(AT_HOME, { query: 'x', tab: 'lost' }), {
    ...AT_HOME, query: 'x', tab: 'lost',
  });
});

test('keys are named as they are registered, and read as on a keyboard', () => {
  assert.equal(nameOfKey({ key: 'ArrowLeft', shiftKey: true }), 'Shift+ArrowLeft');
  assert.equal(nameOfKey({ key: '?', shiftKey: true }), '?');
  assert.deepEqual(
    ['ArrowLeft', 'Shift+ArrowRight', ' ', '/', '+', 'g', 'Escape'].map(shownKey),
    ['←', 'Shift+→', 'Space', '/', '+', 'g', 'Esc'],
  );
});

/** A row of the list of sessions. */
function row(session, more = {}) {
  return {
    session, records: 1, messages: 1, turns: 1, requests: 4, observed: 0, reconstructed: 0,
    compactions: 0, started: '2026-01-01T00:00:00Z', last: '2026-01-01T00:00:00Z', parent: null,
    forked_at: null, format: null, belongs_to: null, link: null, model: null, tokens: null,
    tokens_estimated: false, cost: null, unpriced: 0, title: null, project: null, live: false, ...more,
  };
}

const shown = (rows, tab = '', query = '', lost = {}) =>
  listedSessions(rows, listOptions({ tab, query }), lost).map(
    ({ row: { session }, depth, matches }) => `${'>'.repeat(depth)}${session}${matches ? '' : '?'}`,
  );

const STORE = [
  row('old', { last: '2026-01-02T00:00:00Z', compactions: 2 }),
  row('old.agent-b', { belongs_to: 'old', link: 'subagent', started: '2026-01-01T02:00:00Z' }),
  row('old.agent-a', { belongs_to: 'old', link: 'subagent', started: '2026-01-01T01:00:00Z' }),
  row('new', {
    last: '2026-01-03T00:00:00Z', format: 'codex', observed: 4, cost: 0.5, title: 'Mend it', project: '/a/Table',
  }),
  row('fork', { parent: 'old.agent-a', forked_at: 7, compactions: 1 }),
  row('lone', { parent: 'deleted', last: null }),
];

test('sessions are listed newest first, with forks and subagents where they began', () => {
  assert.deepEqual(shown(STORE), [
    'new', 'old', '>old.agent-a', '>>fork', '>old.agent-b', 'lone',
  ]);
});

test('a filter keeps the origins of what it finds, marked as not found', () => {
  assert.deepEqual(shown(STORE, '', 'FORK'), ['old?', '>old.agent-a?', '>>fork']);
  assert.deepEqual(shown(STORE, 'compactions'), ['old', '>old.agent-a?', '>>fork']);
  assert.deepEqual(shown(STORE, 'lost', '', { new: 2, old: 0 }), ['new']);
  assert.deepEqual(shown(STORE, '', 'table MEND codex observed'), ['new']);
  assert.deepEqual(shown(STORE, '', 'none such'), []);
});

test('a range of days lets through what was used in it, its ends included', () => {
  assert.deepEqual(shown(STORE, 'from-2026-01-03'), ['new']);
  assert.deepEqual(shown(STORE, 'from-2026-01-02 to-2026-01-02'), ['old']);
  assert.ok(!shown(STORE, 'to-2026-01-09').includes('lone'));
});

test('any order but that of use is flat, and what is not known comes last in both directions', () => {
  const rows = [row('a', { cost: 1 }), row('b', { parent: 'a', cost: 3 }), row('c'), row('d', { cost: 2 })];
  assert.deepEqual(shown(rows, 'cost-down'), ['b', 'd', 'a', 'c']);
  assert.deepEqual(shown(rows, 'cost-up'), ['a', 'd', 'b', 'c']);
  assert.deepEqual(shown(rows, 'title-down', 'prepared'), ['d', 'c', 'b', 'a']);
  assert.deepEqual(shown(STORE, 'last-up'), ['old', '>old.agent-a', '>>fork', '>old.agent-b', 'new', 'lone']);
});

test('a second click on a column turns its order around, and other words of the address stay', () => {
  assert.equal(tabOrderedBy('lost', 'cost'), 'lost cost-down');
  assert.equal(tabOrderedBy('cost-down lost', 'cost'), 'lost cost-up');
  assert.equal(tabOrderedBy('cost-up', 'title'), 'title-up');
  assert.equal(tabOrderedBy('', 'last'), 'last-up');
  assert.equal(tabWith('lost from-2026-01-01', /^from-/, ''), 'lost');
});

test('a session whose name a program made is called by its title', () => {
  const made = '019e1625-789d-76c0-80ab-3724b5ddb799';
  const rows = [row(made, { title: 'Mend the table' }), row('demo', { title: 'Add an option' })];
  assert.deepEqual([made, 'demo', 'gone'].map((name) => labelOf(name, rows)), ['Mend the table', 'demo', 'gone']);
  assert.equal(isReadable(`${made}.agent-1`), false);
});

test('sessions that name each other as origin are listed once', () => {
  const two = [row('a', { belongs_to: 'b' }), row('b', { belongs_to: 'a' }), row('c', { parent: 'c' })];
  assert.deepEqual(shown(two), ['a', '>b', 'c']);
});

test('it is told apart how requests are known', () => {
  assert.equal(knownAs(row('a')), 'prepared');
  assert.equal(knownAs(row('a', { observed: 4 })), 'observed');
  assert.equal(knownAs(row('a', { reconstructed: 4 })), 'reconstructed');
  assert.equal(knownAs(row('a', { reconstructed: 1 })), 'mixed');
  assert.equal(knownAs(row('a', { requests: 0 })), '');
});
