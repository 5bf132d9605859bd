// The tab Compaction: before and after by group, what was decided in runs, and what stands instead.

import { h } from '../core/element.js';
import { counted, countText, durationText, tokensText } from '../parts/numbers.js';
import { standingMark } from '../parts/standing.js';
import { shownText } from '../parts/text.js';
import { linkTo } from '../core/place.js';
import { GROUPS } from '../core/state.js';
import { bodyOf } from './bodies.js';
import { runsText } from './message-head.js';
import { messageView } from './message.js';
import { compactionEffect } from './plan-runs.js';
import { standingAt } from './standing-words.js';
import { compactionLabel, ruleText, triggerWords } from './why-words.js';

/** @typedef {import('./drawer.js').DrawerSubject} DrawerSubject */
/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

// A plan may have hundreds of runs; a person reads the first ones.
const MOST_RUNS_SHOWN = 24;

/** @param {DrawerSubject} subject @param {HTMLElement} panel */
export function compactionPanel(subject, panel) {
  const index = compactionOf(subject);
  if (index < 0) {
    const none = subject.now.compactions.length === 0 ? 'This session had no compaction.' : 'No compaction is in force at this request.';
    panel.replaceChildren(h('p', { class: 'muted', text: none }), ...choice(subject, panel, -1));
    return;
  }
  showCompaction(subject, panel, index);
}

/** The one that took the message out, else the one in force at the cursor. @param {DrawerSubject} subject */
function compactionOf({ now, request, message }) {
  const change = message === null ? -1 : standingAt(now, message, request).change;
  const took = change < 0 ? -1 : now.changes.compaction[change];
  return took >= 0 ? took : now.requests.plan[request];
}

/** @param {DrawerSubject} subject @param {HTMLElement} panel @param {number} index */
function showCompaction(subject, panel, index) {
  const { now } = subject;
  const one = now.compactions[index];
  const effect = compactionEffect(now, index);
  panel.replaceChildren(
    ...choice(subject, panel, index),
    h('div', { class: 'compaction' },
      h('div', null,
        h('p', { class: 'why-sentence', text: compactionSentence(one) }),
        factsOf(now, index, effect)),
      h('div', null, groupTable(now, effect)),
      h('div', null, planTable(now, effect))),
    insertionsOf(subject, one.insertions));
}

/** @param {Timeline['compactions'][number]} one */
function compactionSentence(one) {
  const name = compactionLabel(one);
  const named = name[0].toUpperCase() + name.slice(1);
  if (one.outcome !== 'applied') return `${named} was ${one.outcome}: ${one.error ?? triggerWords(one.trigger)}.`;
  return `${named} took the messages from ${tokensText(one.before, one.before_estimated)} to `
    + `${tokensText(one.after, one.after_estimated)} tokens: ${triggerWords(one.trigger)}.`;
}

/** @param {Timeline} now @param {number} index @param {import('./plan-runs.js').CompactionEffect} effect */
function factsOf(now, index, effect) {
  const one = now.compactions[index];
  const { position } = now.requests;
  const link = (/** @type {number} */ request) => h('a', { href: linkTo({ at: position[request] }), text: now.name(request) });
  /** @type {[string, (Node|string|null)[]|string|null][]} */
  const rows = [
    ['between', effect.before < 0 || effect.after < 0 ? null : ['requests ', link(effect.before), ' and ', link(effect.after)]],
    ['policy', one.trigger === 'imported' ? null : one.strategy + (one.fallback ? `, for which ${one.fallback} decided (${one.error ?? 'no error was recorded'})` : '')],
    ['asked for by', one.requested_by],
    ['sizes', sizeFacts(one)],
    ['messages', `${countText(one.messages_before)} → ${countText(one.messages_after)}`],
    ['file says', one.recorded === null ? null : `${countText(one.recorded)} tokens before`],
    ['took', one.duration > 0 ? durationText(one.duration / 1e6) : null],
    ['record', `@${one.position}`],
  ];
  return h('dl', { class: 'why-facts' }, rows.flatMap(([label, value]) => value === null || value === '' ? [] : [
    h('dt', { text: label }), h('dd', null, typeof value === 'string' ? shownText(value) : value),
  ]));
}

/** @param {Timeline['compactions'][number]} one */
function sizeFacts({ budget, threshold, target }) {
  return Object.entries({ budget, threshold, target })
    .filter(([, tokens]) => tokens !== null)
    .map(([name, tokens]) => `${name} ${countText(/** @type {number} */ (tokens))}`).join(', ');
}

/** @param {Timeline} now @param {import('./plan-runs.js').CompactionEffect} effect */
function groupTable(now, { before, after }) {
  if (before < 0 || after < 0) return h('p', { class: 'muted', text: 'No request stands on both sides.' });
  const was = now.sums(before);
  const is = now.sums(after);
  const most = Math.max(1, ...was, ...is);
  const words = ['system', 'person', 'model', 'results', 'summaries'];
  const bar = (/** @type {string} */ group, /** @type {number} */ tokens) =>
    h('span', { class: `token-bar g-${group}`, 'aria-hidden': 'true', vars: { '--share': `${(tokens / most) * 100}%` } });
  return h('table', { class: 'groups' },
    h('caption', { text: 'Tokens of the messages by group, in the requests before and after' }),
    h('thead', null, h('tr', null, ['group', 'before', 'after', 'change'].map((text, at) =>
      h('th', { scope: 'col', class: at === 0 ? null : 'number', text })))),
    h('tbody', null, GROUPS.map((group, at) => was[at] === 0 && is[at] === 0 ? null : h('tr', null,
      h('th', { scope: 'row', text: words[at] }),
      h('td', { class: 'number' }, bar(group, was[at]), tokensText(was[at], true)),
      h('td', { class: 'number' }, bar(group, is[at]), tokensText(is[at], true)),
      h('td', { class: 'number', text: signedTokens(is[at] - was[at]) })))));
}

/** @param {number} tokens */
export function signedTokens(tokens) {
  return tokens === 0 ? '=' : `${tokens > 0 ? '+' : '−'}${countText(Math.abs(tokens))}`;
}

/** @param {Timeline} now @param {import('./plan-runs.js').CompactionEffect} effect */
function planTable(now, { parts, kept }) {
  return h('ul', { class: 'plan' },
    h('li', null, standingMark('whole'), h('span', { text: counted(kept, 'message') }), h('span', { class: 'muted', text: 'left as they were' })),
    parts.map((part) => h('li', null,
      planMark(part.what), h('span', { text: counted(part.count, 'message') }),
      h('span', { class: 'muted', text: ruleText(now, part.reason) }),
      h('span', { class: 'runs mono', text: shortRuns(part.runs) }))));
}

/** @param {string} what */
function planMark(what) {
  return standingMark(what === 'thinking_left_out' ? 'stripped' : what);
}

/** @param {[number, number][]} runs */
function shortRuns(runs) {
  const more = runs.length - MOST_RUNS_SHOWN;
  return runsText(runs.slice(0, MOST_RUNS_SHOWN)) + (more > 0 ? ` and ${counted(more, 'more run')}` : '');
}

/** @param {DrawerSubject} subject @param {readonly number[]} ids */
function insertionsOf({ now, alive }, ids) {
  return h('div', { class: 'why-instead' }, ids.map((id, at) => {
    const entry = now.entry(id);
    const stands = entry.extra?.stands_for?.length ? ` for ${runsText(entry.extra.stands_for)}` : '';
    const text = h('div', { class: 'row-text' });
    if (entry.position !== null && entry.index !== null) {
      void bodyOf(now.session, { position: entry.position, index: entry.index }).then((body) => {
        if (alive()) text.replaceChildren(messageView(body));
      }, () => undefined);
    }
    return h('details', { class: 'instead', open: at === 0 },
      h('summary', { text: `The ${entry.extra?.name ?? 'text'} that it put in${stands}, ${tokensText(entry.tokens, true)} tokens` }), text);
  }));
}

/**
 * The other compactions, to step through.
 * @param {DrawerSubject} subject
 * @param {HTMLElement} panel
 * @param {number} index
 */
function choice(subject, panel, index) {
  const { compactions } = subject.now;
  if (compactions.length === 0 || (compactions.length === 1 && index >= 0)) return [];
  const select = h('select', { 'aria-label': 'Compaction' },
    index < 0 ? h('option', { value: '', text: 'Choose a compaction' }) : null,
    compactions.map((one, at) => h('option', {
      value: String(at), selected: at === index,
      text: `${compactionLabel(one)} · @${one.position}${one.outcome === 'applied' ? '' : ` · ${one.outcome}`}`,
    })));
  select.addEventListener('change', () => {
    if (select.value === '') return;
    showCompaction(subject, panel, Number(select.value));
    panel.querySelector('select')?.focus();
  });
  return [h('p', { class: 'choice' }, select)];
}
