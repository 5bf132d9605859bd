// Whether the browser derives, for every request, what the engine says of it: the files are those of
// tests/web/test_agreement.py.

import assert from 'node:assert/strict';

import { MessageMarks, viewDigest, viewHolds } from '../../../eventctx/web/page/timeline/digest.js';
import { LOG_GROUPS } from '../../../eventctx/web/page/timeline/groups.js';
import { CHANGE_KINDS, STANDINGS } from '../../../eventctx/web/page/timeline/standing.js';
import { Timeline } from '../../../eventctx/web/page/timeline/timeline.js';

/** An entry as tests/web/test_agreement.py writes it. */
function written(entry) {
  const { kind, number, position, index, tokens, extra } = entry;
  const body = position === null ? '' : ` @${position}.${index}`;
  const omit = (extra?.omit ?? []).map((call) => ` -${call}`).join('');
  if (kind === 'opening') return `opening =${tokens}`;
  if (kind === 'insertion') return `insertion ${extra.name}${body} =${tokens}`;
  if (kind === 'synthetic') return `synthetic #${number} ${extra.call}${body} =${tokens}`;
  return `${kind} #${number}${body} =${tokens}${omit}`;
}

function groupsOf(timeline, request) {
  const sums = timeline.logSums(request);
  const counted = timeline.sumTable.of(request);
  return Object.fromEntries(
    LOG_GROUPS.flatMap((name, group) => (counted[group] > 0 ? [[name, sums[group]]] : [])),
  );
}

async function agrees(timeline, said) {
  const marks = new MessageMarks(said.marks);
  assert.equal(timeline.requests.count, said.requests.length);
  for (const [request, one] of said.requests.entries()) {
    const place = `request ${request} at @${one.position}`;
    const entries = Array.from(timeline.view(request), (id) => timeline.entry(id, request));
    assert.equal(timeline.requests.position[request], one.position, place);
    assert.equal(timeline.name(request), one.name, place);
    assert.deepEqual(entries.map(written), one.entries, place);
    assert.equal(timeline.requests.entries[request], entries.length, place);
    const codes = Array.from(timeline.standings(request));
    assert.equal(codes.slice(0, one.standings.length).join(''), one.standings, place);
    assert.ok(codes.slice(one.standings.length).every((code) => STANDINGS[code] === 'not_added'), place);
    for (const [number, cause] of one.causes.entries()) {
      const { what, change } = timeline.standing(number, request);
      assert.equal(what, STANDINGS[codes[number]], `${place}, #${number}`);
      assert.equal(change < 0 ? -1 : timeline.changes.position[change], cause, `${place}, #${number}`);
    }
    assert.deepEqual(groupsOf(timeline, request), one.groups, place);
    const sums = timeline.sums(request);
    if (entries.length > 0) assert.equal(sums.reduce((sum, part) => sum + part, 0), one.messages, place);
    assert.equal(timeline.requests.messages[request], one.messages, place);
    assert.equal(timeline.requests.total[request], one.total, place);
    assert.equal(timeline.requests.estimated[request] === 1, one.estimated, place);
    assert.equal(timeline.requests.beside[request], one.beside ?? -1, place);
    assert.equal(await viewDigest(timeline, request, marks), one.digest, place);
    assert.ok(await viewHolds(timeline, request, marks), place);
    const out = timeline.wordsOutOfView(request).map(({ number, fell }) => [number, fell]);
    assert.deepEqual(out, one.out, place);
  }
}

/** The whole document says what the engine says. */
export async function wholeAgrees(said) {
  const { kinds, groups, what } = said.document.legends;
  assert.deepEqual(groups, LOG_GROUPS);
  assert.deepEqual(kinds, LOG_GROUPS.slice(0, kinds.length));
  assert.deepEqual(what, CHANGE_KINDS);
  await agrees(Timeline.from(said.document), said);
}

/** And so do its pieces. */
export async function piecesAgree(said) {
  const [first, ...deltas] = said.deltas;
  const timeline = Timeline.from(first);
  for (const delta of deltas) timeline.append(delta);
  await agrees(timeline, said);
}
