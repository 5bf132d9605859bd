// The tab Diff: what changed since the request before of the same agent, by what became of it and why.

import { pairRow } from '../compare/pair-rows.js';
import { viewChanges } from '../compare/view-pairs.js';
import { h } from '../core/element.js';
import { linkTo } from '../core/place.js';
import { GROUPS } from '../core/state.js';
import { runsOfNumbers, runsText } from '../panes/message-head.js';
import { compactionLabel, ruleText } from '../panes/why-words.js';
import { appendRows } from '../parts/more-rows.js';
import { counted, signed, tokensText } from '../parts/numbers.js';

/** @typedef {import('./drawer.js').DrawerSubject} DrawerSubject */
/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('../compare/view-pairs.js').ChangedMessages} ChangedMessages */
/** @typedef {import('../compare/view-pairs.js').ViewPair} ViewPair */
/** @typedef {import('../compare/pair-rows.js').PairContext} PairContext */

/** @type {Readonly<Record<string, [sign: string, words: string]>>} */
const CHANGE_TITLES = {
  summarised: ['−', 'summarised'], dropped: ['−', 'dropped'], merged: ['−', 'merged with a later one that says the same'],
  omitted: ['−', 'left out: a result whose call is gone'], replaced: ['−', 'replaced by the host’s own system prompt'],
  set: ['−', 'taken out by a set'], cleared: ['−', 'taken out by a clear'], shortened: ['~', 'shortened'],
  thinking_left_out: ['~', 'thinking left out'], results_left_out: ['~', 'some results left out'],
  restored: ['+', 'back in view, whole'], entered: ['+', 'added since'],
};

const SIGN_CLASSES = /** @type {Readonly<Record<string, string>>} */ ({ '−': 'gone', '+': 'come' });

/** @param {DrawerSubject} subject @param {HTMLElement} panel */
export function diffPanel({ now, request }, panel) {
  const before = now.previousOf(request);
  const { position } = now.requests;
  const { groups, came, went, passed } = viewChanges(now, before, request);
  const context = { session: now.session, at: position[request], later: `request ${now.name(request)}` };
  const section = (/** @type {string} */ sign, /** @type {string} */ words, /** @type {ViewPair[]} */ pairs) =>
    pairs.length === 0 ? null : changeSection(sign, [`${counted(pairs.length, 'text')} ${words}`], pairs, context);
  panel.replaceChildren(h('div', null,
    h('p', { class: 'why-sentence' }, `Request ${now.name(request)}, compared with `,
      before < 0 ? 'nothing: it is the first request. ' : [
        h('a', { href: linkTo({ at: position[before] }), text: `request ${now.name(before)}` }), '. ',
        h('a', { href: linkTo({ screen: 'compare', at: position[request], partner: position[before] }), text: 'Compare them side by side' }),
      ]),
    before < 0 ? null : groupChanges(now, before, request),
    groups.length + came.length + went.length === 0 ? h('p', { class: 'muted', text: 'Both show the same.' }) : null,
    groups.map((group) => groupView(now, group, context)),
    section('−', 'not inserted any more', went),
    section('+', 'inserted', came),
    passed === 0 ? null : h('p', { class: 'muted',
      text: `${counted(passed, 'message')} more came in between and left again, or never were in view.` })));
}

/** @param {Timeline} now @param {number} before @param {number} after */
function groupChanges(now, before, after) {
  const [was, is] = [now.sums(before), now.sums(after)];
  const { total, estimated } = now.requests;
  const words = ['system', 'person', 'model', 'results', 'summaries'];
  const changed = GROUPS.map((group, at) => [group, words[at], is[at] - was[at]]).filter(([, , by]) => by !== 0);
  return h('p', { class: 'diff-sums' },
    `${tokensText(total[before], estimated[before])} → ${tokensText(total[after], estimated[after])} tokens: `,
    changed.length === 0 ? 'the messages are as many' : changed.map(([group, word, by], at) => [
      at === 0 ? '' : ', ', h('span', { class: `g-word g-${group}`, text: `${word} ${signed(Number(by))}` }),
    ]));
}

/** @param {Timeline} now @param {ChangedMessages} group @param {PairContext} context */
function groupView(now, { what, reason, compaction, pairs }, context) {
  const [sign, words] = CHANGE_TITLES[what] ?? ['', what];
  const why = [ruleText(now, reason), compaction < 0 ? '' : compactionLabel(now.compactions[compaction])];
  const numbers = pairs.map(({ a, b }) => (b ?? a)?.number ?? 0);
  return changeSection(sign, [
    `${counted(pairs.length, 'message')} ${words}`,
    h('span', { class: 'muted', text: why.map((one) => (one === '' ? '' : ` · ${one}`)).join('') }),
  ], pairs, context, h('p', { class: 'mono runs', text: runsText(runsOfNumbers(numbers).slice(0, 24)) }));
}

/**
 * @param {string} sign
 * @param {(Node | string)[]} title
 * @param {ViewPair[]} pairs
 * @param {PairContext} context
 * @param {HTMLElement | null} [runs]
 */
function changeSection(sign, title, pairs, context, runs = null) {
  const list = h('ul', { class: 'pair-rows' });
  appendRows(list, pairs, (pair) => pairRow(pair, context), { first: 8, step: 500 });
  return h('section', { class: `diff-group is-${SIGN_CLASSES[sign] ?? 'changed'}` },
    h('h3', null, h('span', { class: 'sign', 'aria-hidden': 'true', text: sign }), title), runs, list);
}
