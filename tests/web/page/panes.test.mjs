// What the panes say of a session, from its columns.

import assert from 'node:assert/strict';
import test from 'node:test';

import { changedOnTheWay } from '../../../eventctx/web/page/integrity/known-requests.js';
import { documentContents } from '../../../eventctx/web/page/panes/image.js';
import { goalOf } from '../../../eventctx/web/page/panes/session-keys.js';
import { checkedImageType, imageData } from '../../../eventctx/web/page/panes/image.js';
import { injectedPieces } from '../../../eventctx/web/page/panes/message.js';
import { runsOfNumbers, runsText } from '../../../eventctx/web/page/panes/message-head.js';
import { argumentsLine, messageLine } from '../../../eventctx/web/page/panes/message-line.js';
import { viewChanges } from '../../../eventctx/web/page/compare/view-pairs.js';
import { compactionEffect } from '../../../eventctx/web/page/drawer/compaction.js';
import { suggestedMessage } from '../../../eventctx/web/page/drawer/why.js';
import { newEntries, rowOfMessage, sentRows } from '../../../eventctx/web/page/panes/sent-rows.js';
import { lastRequestBefore, whyFacts, whySentence } from '../../../eventctx/web/page/panes/why-words.js';
import { withParts } from '../../../eventctx/web/page/source/message-parts.js';
import { Timeline } from '../../../eventctx/web/page/timeline/timeline.js';
import { smallDocument } from './made.mjs';
import { panesDocument } from './panes-document.mjs';

const hand = Timeline.from(panesDocument());
const ids = (pairs) => pairs.map(({ a, b }) => (b ?? a).id);
const numbers = (pairs) => pairs.map(({ a, b }) => (b ?? a).number);
const changed = (groups) => groups.map(({ what, pairs }) => [what, numbers(pairs)]);

test('what changed over a compaction is grouped by what became of it, losses first', () => {
  const { groups, came, went, passed } = viewChanges(hand, 0, 1);
  assert.deepEqual(changed(groups), [['summarised', [1, 2]], ['shortened', [3]], ['entered', [5, 6]]]);
  assert.deepEqual([ids(came), ids(went), passed], [[-1], [], 1]);
  assert.equal(hand.reasons[groups[0].reason].code, 'summary');
  assert.equal(groups[0].compaction, 0);
});

test('a message that came back is restored, and one that is new has entered', () => {
  const { groups, came, went } = viewChanges(hand, 1, 2);
  assert.deepEqual(changed(groups), [['restored', [1]], ['entered', [7]]]);
  assert.deepEqual([came, went], [[], []]);
});

test('the first request adds all that it holds', () => {
  assert.deepEqual(changed(viewChanges(hand, -1, 0).groups), [['entered', [0, 1, 2, 3]]]);
  assert.deepEqual([...newEntries(hand, -1, 0)], [0, 1, 2, 3]);
});

test('new since the request before is what that one did not hold so', () => {
  assert.deepEqual([...newEntries(hand, 0, 1)], [-1, -2, 5, 6]);
  assert.deepEqual([...newEntries(hand, 1, 2)], [1, 7]);
});

test('the changes between any two requests lead from one view to the other', () => {
  const made = Timeline.from(smallDocument());
  const entries = (request) => [...made.view(request)].map((id) => made.entry(id));
  const shows = ({ kind, number }) => number !== null && kind !== 'synthetic';
  const shown = (request) => new Set(entries(request).filter(shows).map(({ number }) => number));
  for (let after = 1; after < made.requests.count; after++) {
    const now = shown(after - 1);
    for (const { what, pairs } of viewChanges(made, after - 1, after).groups) {
      const comes = ['entered', 'restored', 'shortened'].includes(what);
      for (const number of numbers(pairs)) comes ? now.add(number) : now.delete(number);
    }
    assert.deepEqual([...now].sort(), [...shown(after)].sort(), `request ${after}`);
  }
});

test('a compaction is counted by what it did, in runs, with what it left alone', () => {
  const effect = compactionEffect(hand, 0);
  assert.deepEqual([effect.before, effect.after, effect.kept], [0, 1, 3]);
  assert.deepEqual(
    effect.parts.map(({ what, count, runs }) => [what, count, runs]),
    [['summarised', 2, [[1, 2]]], ['shortened', 1, [[3, 3]]], ['dropped', 1, [[4, 4]]]],
  );
});

test('why is a sentence that names compaction, request and rule', () => {
  assert.equal(whySentence(hand, 2, 1), 'Summarised at compaction 1, before request 2.1: a summary stands for it.');
  assert.equal(whySentence(hand, 4, 1),
    'Dropped at compaction 1, before request 2.1: an old user message, cut or dropped to reach the target.');
  assert.equal(whySentence(hand, 3, 1),
    'Sent in request 2.1, but shortened at compaction 1, before request 2.1: an old tool result, shortened to reach the target.');
  assert.equal(whySentence(hand, 0, 1), 'Sent in request 2.1, whole. Compaction 1 kept it.');
  assert.equal(whySentence(hand, 1, 0), 'Sent in request 1.1, whole. No compaction is in force, so nothing is left out.');
  assert.equal(whySentence(hand, 7, 2), 'Sent in request 2.2, whole. It was added after compaction 1, the last one.');
  assert.equal(whySentence(hand, 7, 1), 'Not there yet: it was added after request 2.1.');
});

test('of an imported compaction no rule is told, since none is known', () => {
  const imported = panesDocument();
  imported.reasons[0] = { code: 'imported', rule: 'so recorded in the imported transcript' };
  const timeline = Timeline.from(imported);
  assert.equal(whySentence(timeline, 2, 1), 'Summarised at compaction 1, before request 2.1.');
  const rule = whyFacts(timeline, 2, 1).find(({ label }) => label === 'rule');
  assert.equal(rule?.text, 'not known: the imported file does not tell it');
});

test('while nothing is chosen, a lost message of the person is explained, else the newest', () => {
  assert.deepEqual(suggestedMessage(hand, 1), { message: 1, isLost: true }, 'the one with a demand');
  assert.deepEqual(suggestedMessage(hand, 2), { message: 4, isLost: true });
  assert.deepEqual(suggestedMessage(hand, 0), { message: 1, isLost: false });
});

test('the facts tell the compaction, the rule, the sizes and when it was last sent', () => {
  const facts = (number) => Object.fromEntries(whyFacts(hand, number, 1).map(({ label, text }) => [label, text]));
  assert.equal(facts(2).compaction, 'compaction 1 at @30: the threshold was reached; policy ladder; 9,460 → ~1,065 tokens');
  assert.equal(facts(2)['last sent'], 'in request 1.1');
  assert.equal(facts(3).size, '~9,000 → ~600 tokens');
  assert.equal(facts(1).holds, '1 demand of a person');
  assert.equal(lastRequestBefore(hand, 4, 1), null, 'no request held it before it was dropped');
});

test('the rows of a request are its entries in order, then what the host did otherwise', () => {
  const rows = sentRows(hand, 2, newEntries(hand, 1, 2), null);
  assert.deepEqual(rows.filter((row) => row.type === 'entry').map((row) => row.id), [0, 1, -1, -2, 5, 6, 7]);
  assert.deepEqual(rows.at(-1), { type: 'unsent', missing: 1, additions: 2, untold: null });
});

test('what the host added and did not tell is said to be unknown, with the least number of it', () => {
  const { additions } = hand.requests;
  const before = additions[1];
  for (const [stored, untold] of [[-1, 0], [-3, 2]]) {
    additions[1] = stored;
    assert.deepEqual(sentRows(hand, 1, new Set(), null).at(-1), { type: 'unsent', missing: 0, additions: 0, untold });
    assert.equal(changedOnTheWay(hand).untold, 1);
  }
  additions[1] = before;
});

test('what the host added stands where it sent it', () => {
  const message = { role: 'user', content: 'a hint' };
  const answer = { as_sent: null, tools: null, sent: [{ additions: [{ behind: 1, message }] }] };
  const rows = sentRows(hand, 2, new Set(), answer);
  assert.deepEqual(rows[1], { type: 'added', message });
});

test('an observed request shows its messages as they were sent, behind system and tools', () => {
  const sent = [{ message: { role: 'user', content: 'x' }, numbers: [1], injected: [] }];
  const answer = { as_sent: { system: 'be kind', tools: [{ name: 'read' }], messages: sent }, sent: [] };
  const rows = sentRows(hand, 1, new Set(), answer);
  assert.deepEqual(rows.map((row) => row.type), ['beside', 'beside', 'sent']);
  assert.deepEqual(rowOfMessage(hand, rows, 1), { row: 2, standsFor: false });
});

test('a message is found by its row, its shortened text or the summary that stands for it', () => {
  const rows = sentRows(hand, 1, new Set(), null);
  assert.deepEqual(rowOfMessage(hand, rows, 3), { row: 2, standsFor: false });
  assert.deepEqual(rowOfMessage(hand, rows, 2), { row: 1, standsFor: true });
  assert.deepEqual(rowOfMessage(hand, rows, 4), { row: -1, standsFor: false });
});

test('go to understands a message, a position and a request, and nothing that is not there', () => {
  assert.deepEqual(goalOf(hand, ' #4 '), { message: 4 });
  assert.deepEqual(goalOf(hand, '4'), { message: 4 });
  assert.deepEqual(goalOf(hand, '@35'), { at: 35 });
  assert.deepEqual(goalOf(hand, '2.2'), { at: 45 });
  for (const input of ['#8', '@51', '9.9', 'x', '', '-1']) assert.equal(goalOf(hand, input), null, input);
});

test('a message on one line shows calls, results and thinking apart', () => {
  const call = { type: 'tool_use', id: 'c', name: 'read', input: { path: 'a', start: 1 } };
  const said = { role: 'assistant', content: [{ type: 'text', text: ' See\n it.' }, call] };
  assert.equal(messageLine(withParts(said, [['text', ['content', 0, 'text']], ['call', ['content', 1, 'input'], '', ['c'], 'read']])),
    'See it. → read(path=a, start=1)');
  const result = ['result', ['content'], '', ['c'], null, false, [['text', ['content']]]];
  assert.equal(messageLine(withParts({ role: 'tool', tool_call_id: 'c', content: 'done' }, [result])), '← done');
  const sealed = { role: 'assistant', content: [{ type: 'redacted_thinking', data: 'abc' }] };
  assert.equal(messageLine(withParts(sealed, [['thinking', ['content', 0, 'data'], 'redacted_thinking']])),
    '(thinking) [redacted, 3 characters]');
  assert.equal(messageLine(null), '[erased]');
  assert.equal(argumentsLine('{"a": [1]}'), 'a=[1]');
  assert.equal(argumentsLine('not JSON'), 'not JSON');
});

test('a line of a text of megabytes is short', () => {
  const line = messageLine(withParts({ role: 'user', content: 'word '.repeat(2_000_000) }, [['text', ['content']]]));
  assert.ok(line.length <= 240, String(line.length));
});

test('injected texts are cut out by code points, whatever the text holds', () => {
  const text = '😀 hello <reminder/> world';
  const start = [...text].indexOf('<');
  assert.deepEqual(injectedPieces(text, [{ place: [], start, end: start + 11 }]), [
    { text: '😀 hello ', isInjected: false }, { text: '<reminder/>', isInjected: true }, { text: ' world', isInjected: false },
  ]);
  assert.deepEqual(injectedPieces('ab', [{ place: [], start: 1, end: 99 }, { place: [], start: 0, end: 1 }]), [
    { text: 'a', isInjected: true }, { text: 'b', isInjected: true },
  ]);
});

test('an image is shown only if its bytes are those of a known type', () => {
  const base64 = (bytes) => Buffer.from(bytes).toString('base64');
  assert.equal(checkedImageType(base64([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0]))?.[0], 'image/png');
  assert.equal(checkedImageType(base64('RIFF1234WEBPVP8 '))?.[0], 'image/webp');
  assert.equal(checkedImageType(base64('<svg onload="x()"></svg>')), null);
  assert.equal(checkedImageType('not base64 at all!'), null);
  assert.equal(imageData({ type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }), 'AAAA');
  assert.equal(imageData({ type: 'image_url', image_url: { url: 'https://example.org/a.png' } }), null);
});

test('numbers are written as runs', () => {
  assert.equal(runsText(runsOfNumbers([1, 2, 3, 7])), '#1–#3, #7');
});

test('a document is found wherever its dialect keeps it', () => {
  const text = { type: 'document', title: 'notes', source: { type: 'text', media_type: 'text/plain', data: 'one' } };
  assert.deepEqual(documentContents(text), { name: 'notes', type: 'text/plain', text: 'one', base64: null });
  const file = { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' } };
  assert.deepEqual(documentContents(file), { name: 'a.pdf', type: 'application/pdf', text: null, base64: 'JVBERi0=' });
  assert.equal(documentContents({ ...file.file, type: 'input_file' })?.name, 'a.pdf');
  const sound = { type: 'input_audio', input_audio: { data: 'UklGRg==', format: 'wav' } };
  assert.deepEqual(documentContents(sound), { name: 'document', type: 'wav', text: null, base64: 'UklGRg==' });
  for (const none of [null, {}, 'x', { source: { type: 'url', url: 'https://a.example/b' } }, { file: { file_id: 'f' } }]) {
    assert.equal(documentContents(none), null);
  }
});
