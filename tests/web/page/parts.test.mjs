// Text as it may be shown, numbers as a person reads them, and heights of many rows.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { diffRuns } from '../../../eventctx/web/page/parts/json-tree.js';
import { jsonInText } from '../../../eventctx/web/page/parts/json-tree.js';
import { ListWindow, MOST_SCROLL_HEIGHT } from '../../../eventctx/web/page/parts/list-window.js';
import {
  agoText, durationText, percentText, shortTokens, tokensText, utcText,
} from '../../../eventctx/web/page/parts/numbers.js';
import { RowHeights } from '../../../eventctx/web/page/parts/list-window.js';
import { firstLine, shownText } from '../../../eventctx/web/page/parts/text.js';
import { csvText } from '../../../eventctx/web/page/parts/saving.js';

test('a text keeps its breaks and shows what would hide or control', () => {
  assert.equal(shownText('a\tb\nc'), 'a\tb\nc');
  assert.equal(shownText('\u001b[31mred\u001b[0m'), '\\x1b[31mred\\x1b[0m');
  assert.equal(shownText('a\u202egnp.exe'), 'a\\u202egnp.exe');
  assert.equal(shownText('one\rtwo\u0000'), 'one\\rtwo\\x00');
  assert.equal(shownText('\u200b\ufeff\u2028'), '\\u200b\\ufeff\\u2028');
  assert.equal(shownText('a\u00adb\u180e'), 'a\\xadb\\u180e');
  assert.equal(shownText('\u{e0041}\u{e007f}'), '\\U000e0041\\U000e007f');
});

test('half a surrogate pair shows as an escape, and a whole one as its character', () => {
  assert.equal(shownText('\ud800x\udc00'), '\\ud800x\\udc00');
  assert.equal(shownText('\u{1f600} é ß 漢 עברית'), '\u{1f600} é ß 漢 עברית');
});

test('the first line of a text is one line, and never ends within a character', () => {
  assert.equal(firstLine('  a\n\n b\tc '), 'a b c');
  assert.equal(firstLine('abcdef', 3), 'abc…');
  assert.equal(firstLine('ab\u{1f600}', 3), 'ab…');
  assert.equal(firstLine(`${' '.repeat(2000)}late`, 10), '…');
  assert.equal(firstLine('\u001b]0;title\u0007', 50), '\\x1b]0;title\\x07');
});

test('a diff is coloured within its hunks alone', () => {
  const text = '- a list\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n-2\n+three\n\\ No newline\nthe end\n- a list';
  assert.deepEqual(diffRuns(text), [
    ['', '- a list\n'], ['hunk', '--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n'], ['', ' one\n'], ['del', '-two\n-2\n'],
    ['ins', '+three\n'], ['', '\\ No newline\nthe end\n- a list'],
  ]);
  assert.equal(diffRuns(text).map(([, run]) => run).join(''), text);
  const patch = '*** Begin Patch\n*** Update File: x\n@@\n-a\n+b\n*** End Patch';
  assert.deepEqual(diffRuns(patch).map(([kind]) => kind), ['hunk', 'del', 'ins', 'hunk']);
});

test('a text that is one JSON object or list is read, and nothing else', () => {
  assert.deepEqual(jsonInText(' {"a": [1]}\n'), { a: [1] });
  assert.deepEqual(jsonInText('[]'), []);
  for (const text of ['', '1', '"a"', 'null', '{', '{a}', '[1] [2]', '{"a": 1} and more', `[${' '.repeat(1_000_000)}]`]) {
    assert.equal(jsonInText(text), undefined, text.slice(0, 20));
  }
});

test('numbers read the same everywhere', () => {
  assert.equal(tokensText(81315), '81,315');
  assert.equal(tokensText(15940, true), '~15,940');
  assert.deepEqual(
    [0, 812, 999, 1000, 9949, 9950, 81315, 999_499, 999_500, 1_234_567].map((n) => shortTokens(n)),
    ['0', '812', '999', '1.0k', '9.9k', '10k', '81k', '999k', '1.0M', '1.2M'],
  );
  assert.equal(shortTokens(15940, true), '~16k');
  assert.deepEqual([0, 0.004, 0.62, 1].map(percentText), ['0 %', '< 1 %', '62 %', '100 %']);
  assert.deepEqual(
    [12, 4200, 59_960, 200_000, 7_260_000].map(durationText),
    ['12 ms', '4.2 s', '1 min 0 s', '3 min 20 s', '2 h 1 min'],
  );
});

test('times are UTC, and what cannot be a time does not stop the page', () => {
  assert.equal(utcText(Date.UTC(2026, 10, 23, 2, 0, 30)), '2026-11-23 02:00:30 UTC');
  assert.equal(utcText(NaN), 'no time');
  const now = Date.UTC(2026, 10, 23);
  const hour = 3_600_000;
  assert.deepEqual(
    [0, 59_000, 60_000, hour, 49 * hour, 800 * 24 * hour].map((passed) => agoText(now - passed, now)),
    ['just now', 'just now', '1 minute ago', '1 hour ago', '2 days ago', '2 years ago'],
  );
  assert.equal(agoText(now + hour, now), '2026-11-23 01:00:00 UTC');
});

test('heights of rows give the same sums as adding them up', () => {
  const heights = new RowHeights();
  const plain = [];
  const check = () => {
    let before = 0;
    for (let row = 0; row < plain.length; row++) {
      assert.equal(heights.before(row), before);
      assert.equal(heights.at(before), row);
      assert.equal(heights.at(before + plain[row] - 1), row);
      before += plain[row];
    }
    assert.equal(heights.total, before);
    assert.equal(heights.at(before + 1000), Math.max(0, plain.length - 1));
  };
  check();
  for (const count of [1, 2, 3, 7, 64, 65, 200]) {
    heights.grow(count, (row) => 20 + (row % 7));
    while (plain.length < count) plain.push(20 + (plain.length % 7));
    for (let row = 0; row < count; row += 5) {
      plain[row] = 30 + ((row * count) % 50);
      heights.set(row, plain[row]);
    }
    check();
  }
});

/** A list window of rows of one height, 600 pixels of it in sight. */
function listOf(count, height = 40) {
  const list = new ListWindow();
  const rows = { count, key: (row) => row, height: () => height, render: () => null };
  list.reset(rows);
  list.resize(400, 600);
  list.settleAtAnchor();
  return { list, rows };
}

test('a row stays where it stands while rows above turn out higher', () => {
  const { list } = listOf(1000);
  list.scrolled(4010, 4010);
  assert.deepEqual(list.rowsWithin(0), [100, 115]);
  for (let row = 90; row < 100; row++) assert.ok(list.measured(row, row, 55));
  list.settleAtAnchor();
  assert.equal(list.top, 4010 + 10 * 15);
  assert.deepEqual(list.rowsWithin(0), [100, 115]);
});

test('a row stays where it stands while rows are added', () => {
  const { list, rows } = listOf(100);
  list.scrolled(800, 800);
  list.grow({ ...rows, count: 150 });
  list.settleAtAnchor();
  assert.equal(list.top, 800);
});

test('a row that is aimed at is in sight, also after it is measured', () => {
  const { list } = listOf(1000);
  list.aimAt(500, 'nearest');
  list.settleAtAnchor();
  list.measured(500, 500, 200);
  list.measured(499, 499, 90);
  list.settleAtAnchor();
  assert.equal(list.heights.before(501), list.top + 600);
  const before = list.top;
  list.aimAt(499, 'nearest');
  list.settleAtAnchor();
  assert.equal(list.top, before, 'it is in sight already');
  list.aimAt(500, 'center');
  list.settleAtAnchor();
  assert.equal(list.heights.before(500) + 100, list.top + 300);
});

test('measured heights are remembered by key while other rows are shown', () => {
  const { list, rows } = listOf(10);
  list.measured(3, 3, 123);
  list.reset({ ...rows, count: 5 });
  assert.equal(list.heights.height(3), 123);
  list.resize(300, 600);
  list.reset({ ...rows, count: 5 });
  assert.equal(list.heights.height(3), 40, 'another width breaks lines elsewhere');
});

test('a list that no browser could scroll reaches its end, and short moves are exact', () => {
  const { list } = listOf(1_000_000, 90);
  assert.equal(list.scrollHeight, MOST_SCROLL_HEIGHT);
  list.scrolled(MOST_SCROLL_HEIGHT - 600, MOST_SCROLL_HEIGHT - 600);
  assert.equal(list.rowsWithin(0)[1], 999_999);
  list.scrolled(MOST_SCROLL_HEIGHT / 2, -MOST_SCROLL_HEIGHT / 2);
  const before = list.top;
  list.scrolled(MOST_SCROLL_HEIGHT / 2 + 100, 100);
  assert.equal(list.top, before + 100);
  list.scrolled(0, -MOST_SCROLL_HEIGHT / 2);
  assert.deepEqual(list.rowsWithin(0), [0, 6]);
});

test('keys lead to rows', () => {
  const { list } = listOf(100);
  const from50 = ['ArrowDown', 'j', 'ArrowUp', 'k', 'PageDown', 'PageUp', 'Home', 'End', 'x'];
  assert.deepEqual(from50.map((key) => list.rowAfterKey(key, 50)), [51, 51, 49, 49, 65, 35, 0, 99, null]);
});

test('a table becomes CSV that no spreadsheet takes for formulas', () => {
  const rows = [
    { name: '=1+1', tokens: -5, note: 'a "quoted", text\nin two lines' },
    { name: '@home', tokens: 2.5, note: null, counts: { kept: 1 } },
    { name: '-x', tokens: undefined, note: '', live: true },
    { name: '+3', note: 'a\rb' },
    { name: '\t=1' },
  ];
  assert.deepEqual(csvText(rows).split('\r\n'), [
    'name,tokens,note,counts,live',
    "'=1+1,-5,\"a \"\"quoted\"\", text\nin two lines\",,",
    "'@home,2.5,,\"{\"\"kept\"\":1}\",",
    "'-x,,,,true",
    "'+3,,\"a\rb\",,",
    "'\t=1,,,,",
    '',
  ]);
  assert.equal(csvText([]), '\r\n');
});
