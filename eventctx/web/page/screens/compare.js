/**
 * `<ctx-compare>`: two requests side by side, or two sessions or policies. B is the cursor; A the place's partner, else the
 * request before B: in a session of its own every agent's requests follow each other.
 */

import { AROUND_WORDS, changesAround, commonPrefix, pairedViews } from '../compare/view-pairs.js';
import { pairList } from '../compare/pair-rows.js';
import { tokenTable } from '../compare/token-table.js';
import { twoPolicies } from '../compare/two-policies.js';
import { sessionPicker, twoSessions } from '../compare/two-sessions.js';
import { define, h } from '../core/element.js';
import { compactionLabel, sizesText } from '../panes/why-words.js';
import { counted, countText, percentText, tokensText, utcText } from '../parts/numbers.js';
import { go, linkTo, place } from '../core/place.js';
import { listenToSteps, stepButtons } from '../parts/cursor-line.js';
import { jsonTwin } from '../parts/json-twin.js';
import { cursor, marks, setCursor, source, timeline, notify } from '../core/state.js';
import { batch, untracked } from '../core/signals.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

define('ctx-compare', (host) => {
  host.classList.add('screen');
  const pickA = requestPicker('A', (request) => setPartner(request));
  const pickB = requestPicker('B', (request) => setCursor(request));
  const swap = h('button', { type: 'button', text: 'Swap', on: { click: () => swapSides() } });
  const before = h('button', {
    type: 'button', class: 'quiet', text: 'Compare with the one before',
    on: { click: () => go({ partner: null }) },
  });
  const summary = h('div', { class: 'compare-summary' });
  const rows = h('div');
  const heading = h('h1', { tabindex: '-1' });
  const modes = h('nav', { class: 'compare-modes', 'aria-label': 'What to compare' });
  const sides = h('div', { class: 'compare-sides' }, pickA.element, pickB.element, swap, before);
  const requests = h('div', null, sides, summary, rows);
  const other = h('div', null, h('div', { class: 'compare-sides' }, sessionPicker(host)));
  const answer = h('div');
  const policies = h('div');
  other.append(answer);
  host.replaceChildren(heading, modes, requests, other, policies);
  host.effect(() => {
    const mode = modeOf(place.value.tab);
    heading.textContent = MODES[mode];
    requests.hidden = mode !== 'requests';
    other.hidden = mode !== 'sessions';
    policies.hidden = mode !== 'policies';
    // A file holds one session, and plays nothing.
    modes.replaceChildren(...(source.can.answers ? modeLinks(mode) : []));
  });
  host.effect(() => {
    const { session, query, tab } = place.value;
    const now = timeline.value;
    const request = cursor.value;
    if (session === null || now === null || modeOf(tab) !== 'sessions') return undefined;
    let wanted = true;
    void twoSessions(session, query, now.requests.position[request] ?? -1).then((nodes) => {
      if (wanted) answer.replaceChildren(...nodes);
    });
    return () => {
      wanted = false;
    };
  });
  host.effect(() => {
    const now = timeline.value;
    if (now === null || modeOf(place.value.tab) !== 'policies' || policies.childElementCount > 0) return;
    policies.append(twoPolicies(now.session, now.requests.budget[untracked(() => cursor.value)] ?? -1));
  });

  takeMarks(host);
  listenToSteps(host, 'compare', (by) => setCursor(cursor.peek() + by));
  let shown = '';
  host.effect(() => {
    const now = timeline.value;
    if (now === null) return;
    now.version.value;
    const b = cursor.value;
    const a = partnerOf(now, b, place.value.partner);
    before.hidden = place.value.partner === null;
    swap.disabled = a < 0;
    pickA.show(now, a);
    pickB.show(now, b);
    const key = `${now.session} ${a} ${b} ${now.requests.total[a]} ${now.requests.total[b]}`;
    if (key === shown) return;
    shown = key;
    if (a < 0) showNothing(now, summary, rows);
    else showBoth(now, a, b, summary, rows);
  });
});

const MODES = { requests: 'Compare two requests', sessions: 'Compare two sessions', policies: 'Compare two policies' };

/** @param {string} tab @returns {keyof typeof MODES} */
function modeOf(tab) {
  return source.can.answers && (tab === 'sessions' || tab === 'policies') ? tab : 'requests';
}

/** @param {string} mode */
function modeLinks(mode) {
  return Object.keys(MODES).map((one) => h('a', {
    href: linkTo({ tab: one === 'requests' ? '' : one }), 'aria-current': one === mode ? 'true' : null, text: `Two ${one}`,
  }));
}

/**
 * The request that stands against B: of a place's position, else the one before.
 *
 * @param {Timeline} now
 * @param {number} b
 * @param {number | null} position
 */
function partnerOf(now, b, position) {
  return position === null ? now.previousOf(b) : now.requestAt(position);
}

/**
 * Requests that were marked in the session are compared, unless the address names others.
 *
 * @param {import('../core/element.js').Host} host
 */
function takeMarks(host) {
  let first = place.peek().partner !== null;
  host.effect(() => {
    const { a, b } = marks.value;
    const skip = first;
    first = false;
    if (skip || timeline.value === null) return;
    untracked(() => batch(() => {
      if (b !== null) setCursor(b);
      if (a !== null) setPartner(a);
    }));
  });
}

/** @param {number} request */
function setPartner(request) {
  const position = timeline.peek()?.requests.position[request];
  if (position !== undefined) go({ partner: position }, { replace: true });
}

function swapSides() {
  const now = timeline.peek();
  if (now === null) return;
  const b = cursor.peek();
  const a = partnerOf(now, b, place.peek().partner);
  batch(() => {
    setPartner(b);
    setCursor(a);
  });
}

/** @param {Timeline} now @param {HTMLElement} summary @param {HTMLElement} rows */
function showNothing(now, summary, rows) {
  const text = now.requests.count === 0
    ? 'Nothing was sent yet.'
    : 'B is the first request: nothing was sent before it. Choose a later one.';
  summary.replaceChildren(h('p', { class: 'lead', text }));
  rows.replaceChildren();
}

/** @param {Timeline} now @param {number} a @param {number} b @param {HTMLElement} summary @param {HTMLElement} rows */
function showBoth(now, a, b, summary, rows) {
  const pairs = pairedViews(now, a, b);
  summary.replaceChildren(
    h('p', { class: 'lead', text: pairCounts(pairs) }),
    tokenTable(now, a, b),
    h('ul', { class: 'plain-facts' },
      h('li', { text: prefixText(now, a, b) }),
      betweenNodes(now, a, b),
      changesAround(now, a, b).map(({ what, before, after }) =>
        h('li', { text: `${AROUND_WORDS[what]}: ${before} → ${after}.` }))),
  );
  const positions = { a: now.requests.position[a], b: now.requests.position[b] };
  rows.replaceChildren(
    h('h2', { text: 'Entries in order' }),
    pairList(pairs, { session: now.session, at: positions.b, later: 'B' }),
    jsonTwin(now.session, 'diff', { before: positions.a, after: positions.b }) ?? '');
}

/** @param {import('../compare/view-pairs.js').ViewPair[]} pairs */
function pairCounts(pairs) {
  const only = (/** @type {string} */ side) => pairs.filter((pair) => pair.side === side).length;
  const changed = pairs.filter((pair) => pair.changed).length;
  const moved = pairs.filter((pair) => pair.moved).length;
  const words = [`${countText(only('a'))} only in A`, `${countText(only('both'))} in both`, `${countText(only('b'))} only in B`];
  if (changed > 0) words.push(`${countText(changed)} changed`);
  if (moved > 0) words.push(`${countText(moved)} moved`);
  return `${words.join(' · ')}.`;
}

/**
 * How much of B's beginning is A's, and what the provider says it read from its cache.
 *
 * @param {Timeline} now
 * @param {number} a
 * @param {number} b
 */
function prefixText(now, a, b) {
  const { entries, tokens, allEntries, allTokens } = commonPrefix(now, a, b);
  const share = allTokens > 0 ? ` (${shareText(tokens, allTokens)})` : '';
  const same = entries === 0
    ? 'B begins otherwise than A: no message can come from the provider’s cache.'
    : `The first ${countText(entries)} of ${counted(allEntries, 'entry', 'entries')} of B are those of A, ` +
      `${tokensText(tokens, true)} of ${tokensText(allTokens, true)} tokens of messages${share}: what a provider can read from its cache.`;
  const cached = now.requests.cached[b];
  return cached < 0 ? same : `${same} For B it reported ${tokensText(cached)} cached tokens.`;
}

/** All is said of all only. @param {number} part @param {number} whole */
function shareText(part, whole) {
  return part < whole && part / whole > 0.99 ? 'more than 99 %' : percentText(part / whole);
}

/** @param {Timeline} now @param {number} a @param {number} b */
function betweenNodes(now, a, b) {
  const compactions = now.compactionsBetween(Math.min(a, b), Math.max(a, b));
  return compactions.map((one) => h('li', null,
    'Between them: ',
    h('a', { href: linkTo({ screen: 'session', at: firstAfter(now, one.position), tab: 'compaction' }), text: compactionLabel(one) }),
    ` (${sizesText(one)}).`));
}

/**
 * The position of the first request after a compaction: there it is in force.
 *
 * @param {Timeline} now
 * @param {number} position
 */
function firstAfter(now, position) {
  return now.requests.position[now.requestAt(position) + 1] ?? null;
}

/**
 * @param {string} side A or B
 * @param {(request: number) => void} pick
 * @returns {{element: HTMLElement, show: (now: Timeline, request: number) => void}}
 */
function requestPicker(side, pick) {
  /** @type {{now: Timeline | null, request: number}} */
  const held = { now: null, request: -1 };
  const steps = stepButtons((by) => pick(held.request + by), side);
  const field = h('input', {
    type: 'text', class: 'request-field', 'aria-label': `Request ${side}: such as 2.3 or @48`,
    autocomplete: 'off', spellcheck: 'false', on: { change: () => typed() },
  });
  const when = h('span', { class: 'muted' });
  function typed() {
    const found = held.now === null ? -1 : held.now.requestNamed(field.value);
    if (found >= 0) pick(found);
    else {
      notify(`No request is named ${field.value}: write 2.3 or @48.`, { isError: true });
      if (held.now !== null) field.value = held.now.name(held.request);
    }
  }
  return {
    element: h('div', { class: 'request-picker' },
      h('span', { class: 'side-mark', 'aria-hidden': 'true', text: side }), steps.back, field, steps.on, when),
    show(now, request) {
      Object.assign(held, { now, request });
      field.value = request < 0 ? '' : now.name(request);
      steps.show(request, now.requests.count);
      when.textContent = request < 0 ? '' : `@${now.requests.position[request]} · ${utcText(now.requests.time[request])}`;
    },
  };
}
