// The tab Diff: what changed since the request before of the same agent.

import { kindWord } from '../charts/request-words.js';
import { h } from '../core/element.js';
import { counted, tokensText } from '../parts/numbers.js';
import { firstLine } from '../parts/text.js';
import { linkTo } from '../core/place.js';
import { GROUPS } from '../core/state.js';
import { showBody } from './bodies.js';
import { signedTokens } from './drawer-compaction.js';
import { messageLink, runsOfNumbers, runsText } from './message-head.js';
import { messageLine } from './message-line.js';
import { viewChanges } from './view-changes.js';
import { compactionLabel, ruleText } from './why-words.js';

/** @typedef {import('./drawer.js').DrawerSubject} DrawerSubject */
/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('./view-changes.js').ChangedMessages} ChangedMessages */

const LISTED_AT_FIRST = 8;

/** @type {Readonly<Record<string, [sign: string, words: string]>>} */
const CHANGE_TITLES = {
  summarised: ['−', 'summarised'], dropped: ['−', 'dropped'], merged: ['−', 'merged with a later one that says the same'],
  omitted: ['−', 'left out: a result whose call is gone'], replaced: ['−', 'replaced by the host’s own system prompt'],
  set: ['−', 'taken out by a set'], cleared: ['−', 'taken out by a clear'], shortened: ['~', 'shortened'],
  thinking_left_out: ['~', 'thinking left out'], results_left_out: ['~', 'some results left out'],
  restored: ['+', 'back in view, whole'], entered: ['+', 'added since'],
};

/** @param {DrawerSubject} subject @param {HTMLElement} panel */
export function diffPanel({ now, request }, panel) {
  const before = now.previousOf(request);
  const { position } = now.requests;
  const changes = viewChanges(now, before, request);
  const from = before < 0 ? 'nothing: it is the first request' : null;
  const compare = before < 0 ? null : h('a', {
    href: linkTo({ screen: 'compare', at: position[request], partner: position[before] }),
    text: 'Compare them side by side',
  });
  panel.replaceChildren(
    h('p', { class: 'why-sentence' }, `Request ${now.name(request)}, compared with `,
      from ?? h('a', { href: linkTo({ at: position[before] }), text: `request ${now.name(before)}` }), '. ', compare),
    before < 0 ? h('span') : groupChanges(now, before, request),
    changes.groups.length + changes.came.length + changes.went.length === 0
      ? h('p', { class: 'muted', text: 'Both show the same.' }) : h('span'),
    ...changes.groups.map((group) => groupView(now, group)),
    ...othersView(now, '−', 'not inserted any more', changes.went),
    ...othersView(now, '+', 'inserted', changes.came),
    changes.passed === 0 ? h('span') : h('p', { class: 'muted',
      text: `${counted(changes.passed, 'message')} more came in between and left again, or never were in view.` }));
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
      at === 0 ? '' : ', ', h('span', { class: `g-word g-${group}`, text: `${word} ${signedTokens(Number(by))}` }),
    ]));
}

/** @param {Timeline} now @param {ChangedMessages} group */
function groupView(now, group) {
  const [sign, words] = CHANGE_TITLES[group.what] ?? ['', group.what];
  const rule = ruleText(now, group.reason);
  const reason = rule === '' ? '' : ` · ${rule}`;
  const by = group.compaction < 0 ? '' : ` · ${compactionLabel(now.compactions[group.compaction])}`;
  const list = h('ul', { class: 'diff-list' });
  const add = (/** @type {number} */ from, /** @type {number} */ to) =>
    list.append(...group.numbers.slice(from, to).map((number) => diffLine(now, number)));
  add(0, LISTED_AT_FIRST);
  const left = group.numbers.length - LISTED_AT_FIRST;
  const more = h('button', {
    type: 'button', class: 'quiet', text: `Show ${counted(Math.min(left, 500), 'more message')}`,
    on: { click: () => { add(LISTED_AT_FIRST, LISTED_AT_FIRST + 500); more.remove(); } },
  });
  return h('section', { class: `diff-group is-${sign === '−' ? 'gone' : sign === '+' ? 'come' : 'changed'}` },
    h('h3', null, h('span', { class: 'sign', 'aria-hidden': 'true', text: sign }),
      `${counted(group.numbers.length, 'message')} ${words}`, h('span', { class: 'muted', text: `${reason}${by}` })),
    h('p', { class: 'mono runs', text: runsText(runsOfNumbers(group.numbers).slice(0, 24)) }),
    list, left > 0 ? more : null);
}

/** @param {Timeline} now @param {number} number */
function diffLine(now, number) {
  const { kind, tokens, position, index } = now.messages;
  const line = h('span', { class: 'why-line' });
  const item = h('li', null,
    messageLink(number), h('span', { class: 'row-kind', text: kindWord(kind[number]) }), line,
    h('span', { class: 'row-tokens', text: tokensText(tokens[number], true) }));
  showBody(now.session, { position: position[number], index: index[number] }, line, (body) => {
    line.textContent = firstLine(messageLine(body), 160);
  });
  return item;
}

/** @param {Timeline} now @param {string} sign @param {string} words @param {readonly number[]} ids */
function othersView(now, sign, words, ids) {
  if (ids.length === 0) return [];
  return [h('section', { class: `diff-group is-${sign === '−' ? 'gone' : 'come'}` },
    h('h3', null, h('span', { class: 'sign', 'aria-hidden': 'true', text: sign }), `${counted(ids.length, 'text')} ${words}`),
    h('ul', { class: 'diff-list' }, ids.map((id) => {
      const entry = now.entry(id);
      const line = h('span', { class: 'why-line' });
      const item = h('li', null, h('span', { class: 'row-kind', text: entry.extra?.name ?? entry.kind }), line,
        h('span', { class: 'row-tokens', text: tokensText(entry.tokens, true) }));
      if (entry.position !== null && entry.index !== null) {
        showBody(now.session, { position: entry.position, index: entry.index }, line, (body) => {
          line.textContent = firstLine(messageLine(body), 160);
        });
      }
      return item;
    })))];
}
