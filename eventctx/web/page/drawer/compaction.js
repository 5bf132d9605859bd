// The tab Compaction: before and after by group, what was decided in runs, and what stands instead.

import { h } from '../core/element.js';
import { counted, countText, durationText, tokensText } from '../parts/numbers.js';
import { standingMark, standingAt } from '../parts/standing.js';
import { shownText } from '../parts/text.js';
import { linkTo } from '../core/place.js';
import { tokenTable } from '../compare/token-table.js';
import { runsText } from '../panes/message-head.js';
import { factsView } from '../parts/facts.js';
import { capitalised, compactionLabel, ruleText, sizesText, triggerWords } from '../panes/why-words.js';
import { lastNotAbove } from '../timeline/columns.js';
import { CHANGE_KINDS } from '../timeline/standing.js';
import { insteadView } from './why.js';

/** @typedef {import('./drawer.js').DrawerSubject} DrawerSubject */
/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/** @typedef {{what: string, reason: number, count: number, runs: [number, number][]}} PlanPart */

/**
 * @typedef {object} CompactionEffect
 * @property {number} before the last request before it, -1 without one
 * @property {number} after the first request after it, -1 without one
 * @property {PlanPart[]} parts largest first
 * @property {number} kept messages from before it that the request after it shows whole
 */

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
      h('div', null, effect.before < 0 || effect.after < 0
        ? h('p', { class: 'muted', text: 'No request stands on both sides.' })
        : tokenTable(now, effect.before, effect.after, ['before', 'after'])),
      h('div', null, planTable(now, effect))),
    insertionsOf(subject, one.insertions));
}

/** @param {Timeline['compactions'][number]} one */
function compactionSentence(one) {
  const named = capitalised(compactionLabel(one));
  if (one.outcome !== 'applied') return `${named} was ${one.outcome}: ${one.error ?? triggerWords(one.trigger)}.`;
  return `${named} took the messages from ${sizesText(one).replace('→', 'to')}: ${triggerWords(one.trigger)}.`;
}

/** @param {Timeline} now @param {number} index @param {CompactionEffect} effect */
function factsOf(now, index, effect) {
  const one = now.compactions[index];
  const { position } = now.requests;
  const link = (/** @type {number} */ request) => h('a', { href: linkTo({ at: position[request] }), text: now.name(request) });
  return factsView([
    ['between', effect.before < 0 || effect.after < 0 ? null : ['requests ', link(effect.before), ' and ', link(effect.after)]],
    ['policy', one.trigger === 'imported' ? null : shownText(one.strategy + (one.fallback ? `, for which ${one.fallback} decided (${one.error ?? 'no error was recorded'})` : ''))],
    ['asked for by', shownText(one.requested_by ?? '')],
    ['sizes', sizeFacts(one)],
    ['messages', `${countText(one.messages_before)} → ${countText(one.messages_after)}`],
    ...cacheFacts(one.cache),
    ['file says', one.recorded === null ? null : `${countText(one.recorded)} tokens before`],
    ['took', one.duration > 0 ? durationText(one.duration / 1e6) : null],
    ['record', `@${one.position}`],
  ]);
}

/** @param {Timeline['compactions'][number]} one */
function sizeFacts({ budget, threshold, target }) {
  return Object.entries({ budget, threshold, target })
    .filter(([, tokens]) => tokens !== null)
    .map(([name, tokens]) => `${name} ${countText(/** @type {number} */ (tokens))}`).join(', ');
}

/**
 * What it costs in the provider's cache, as `eventctx audit` says it.
 * @param {import('../timeline/packing.js').CacheCost | null | undefined} cache
 * @returns {[string, string | null][]}
 */
function cacheFacts(cache) {
  if (!cache) return [];
  const { given_up: lost, rewritten, saved, expected, thinking, reported: told } = cache;
  const often = expected === null ? 'each request' : `each of ~${countText(expected)} requests`;
  const gone = thinking > 0 ? `, ~${countText(thinking)} of thinking leave` : '';
  const missed = told && told.misses > 0 ? `, ${counted(told.misses, 'miss', 'misses')} of ${countText(told.missed)} tokens` : '';
  return [
    ['cache', `gives up ${tokensText(lost, true)} cached tokens, writes ${tokensText(rewritten, true)} again${gone}`],
    [saved < 0 ? 'adds' : 'saves', `${tokensText(Math.abs(saved), true)} tokens in ${often}`],
    ['reported', told && `the first of ${counted(told.requests, 'request')}${told.over ? '' : ' so far'} read ${countText(told.read)} cached tokens and wrote ${countText(told.write)}${missed}`],
  ];
}

/** What a compaction decided, from the columns of changes.
 * @param {Timeline} timeline @param {number} index in the timeline's compactions @returns {CompactionEffect}
 */
export function compactionEffect(timeline, index) {
  const { changes, requests } = timeline;
  const { position } = timeline.compactions[index];
  const before = timeline.requestAt(position);
  const after = before + 1 < requests.count ? before + 1 : -1;
  /** @type {Map<string, PlanPart>} */
  const parts = new Map();
  for (let at = lastNotAbove(changes.position, position - 1) + 1; changes.position[at] === position; at++) {
    const what = CHANGE_KINDS[changes.what[at]];
    const key = `${what} ${changes.reason[at]}`;
    const part = parts.get(key) ?? { what, reason: changes.reason[at], count: 0, runs: [] };
    parts.set(key, part);
    const [first, last] = [changes.first[at], changes.last[at]];
    part.count += last - first + 1;
    const run = part.runs.at(-1);
    if (run !== undefined && run[1] === first - 1) run[1] = last;
    else part.runs.push([first, last]);
  }
  const { position: added } = timeline.messages;
  const whole = after < 0 ? [] : timeline.view(after).filter((id) => id >= 0 && added[id] < position);
  return {
    before, after, kept: whole.length,
    parts: [...parts.values()].sort((a, b) => b.count - a.count),
  };
}

/** @param {Timeline} now @param {CompactionEffect} effect */
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
function insertionsOf(subject, ids) {
  return h('div', { class: 'why-instead' }, ids.map((id, at) => {
    const entry = subject.now.entry(id);
    const stands = entry.extra?.stands_for?.length ? ` for ${runsText(entry.extra.stands_for)}` : '';
    const title = `The ${entry.extra?.name ?? 'text'} that it put in${stands}, ${tokensText(entry.tokens, true)} tokens`;
    return insteadView(subject, entry, title, at === 0);
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
