// `<ctx-head>`: the session in a line, and the request at the cursor in another.

import { define, h } from '../core/element.js';
import { stepButtons } from '../parts/cursor-line.js';
import { counted, countText, percentText, tokensText, utcText } from '../parts/numbers.js';
import { firstLine, shownText } from '../parts/text.js';
import { linkTo } from '../core/place.js';
import { untracked } from '../core/signals.js';
import {
  connection, cursor, follow, followEnd, lives, setCursor, timeline,
} from '../core/state.js';
import { HUMAN_KIND } from '../timeline/groups.js';
import { bodyOf } from './bodies.js';
import { messageLine } from './message-line.js';
import { verdictWord, meaningOfKnown, verification } from './verification.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

define('ctx-head', (host) => {
  const about = h('p', { class: 'head-counts' });
  const lost = h('a', { class: 'head-lost' });
  const live = h('button', { type: 'button', class: 'quiet head-live', on: { click: followEnd } });
  const name = h('h1', { class: 'head-name', tabindex: '-1' });
  const title = h('p', { class: 'head-title' });
  const origin = h('p', { class: 'head-origin' });
  const steps = stepButtons((by) => setCursor(cursor.peek() + by));
  const where = h('p', { class: 'head-where', 'aria-live': 'off' });
  const size = h('div', { class: 'head-size' });
  const known = h('details', { class: 'head-known' });
  host.replaceChildren(
    h('div', { class: 'head-line' }, name, title, about, lost, live, origin),
    h('div', { class: 'head-line', role: 'group', 'aria-label': 'The request at the cursor' },
      steps.back, steps.on, where, size, known),
  );
  host.effect(() => {
    const now = timeline.value;
    if (now === null) return;
    now.version.value;
    name.textContent = shownText(now.session);
    about.replaceChildren(...countsNodes(now));
    origin.replaceChildren(...originNodes(now));
  });
  host.effect(() => {
    const now = timeline.value;
    if (now !== null) untracked(() => showTitle(title, now));
  });
  host.effect(() => {
    const now = timeline.value;
    const request = cursor.value;
    if (now === null) return;
    now.version.value;
    untracked(() => {
      showLost(lost, now, request);
      steps.show(request, now.requests.count);
      where.replaceChildren(...requestNodes(now, request));
      size.replaceChildren(...(request < 0 ? [] : sizeNodes(now, request)));
    });
  });
  host.effect(() => showLive(live));
  host.effect(() => {
    const now = timeline.value;
    const request = cursor.value;
    known.hidden = now === null || request < 0;
    if (now === null || request < 0) known.replaceChildren();
    else showKnown(known, now, request);
  });
});

/** The turns lead to what persons said, which is their table of contents. @param {Timeline} now @returns {(Node|string)[]} */
function countsNodes(now) {
  const compactions = now.compactions.filter((one) => one.number > 0).length;
  const said = linkTo({ screen: 'search', query: '', tab: 'role-person' });
  return [
    h('a', { href: said, title: 'What persons said, turn by turn', text: counted(now.turns.length, 'turn') }),
    ` · ${counted(now.requests.count, 'request')} · ${counted(compactions, 'compaction')}`,
  ];
}

/**
 * What a person said first: programs name their sessions by ids, which nobody remembers.
 * @param {HTMLElement} title
 * @param {Timeline} now
 */
function showTitle(title, now) {
  title.textContent = '';
  const { kind, position, index } = now.messages;
  const first = kind.indexOf(HUMAN_KIND);
  if (first < 0) return;
  void bodyOf(now.session, { position: position[first], index: index[first] }).then((body) => {
    const words = firstLine(messageLine(body), 80);
    // A file of the structure alone has a number of characters in the place of each text.
    const isText = words !== '' && !words.startsWith('[left out of this file');
    if (isText && timeline.peek() === now) title.textContent = `“${words}”`;
  }, () => undefined);
}

/** @param {Timeline} now @returns {(Node|string)[]} where the session came from */
function originNodes(now) {
  const nodes = [];
  if (now.parent !== null) {
    const { session, at } = now.parent;
    nodes.push('forked from ', h('a', { href: linkTo({ session, at }), text: shownText(`${session} at @${at}`) }));
  }
  for (const link of now.links.filter((one) => one.relation === 'parent')) {
    nodes.push(nodes.length ? ' · ' : '', `${link.kind ?? 'begun'} of `,
      h('a', { href: linkTo({ session: link.session }), text: shownText(link.session) }));
  }
  if (now.mirror !== null) {
    const file = now.mirror;
    // Most programs name the file after the session, whose name is here already.
    const from = file.startsWith(now.session) && now.importer !== null ? now.importer : file;
    nodes.push(nodes.length ? ' · ' : '', h('span', { text: `imported from ${shownText(from)}`, title: shownText(file) }));
  }
  return nodes;
}

/** @param {HTMLAnchorElement} lost @param {Timeline} now @param {number} request */
function showLost(lost, now, request) {
  const count = request < 0 ? 0 : now.wordsOutOfView(request).length;
  lost.hidden = count === 0;
  if (count === 0) return;
  lost.textContent = `⚠ ${countText(count)} of your messages ${count === 1 ? 'is' : 'are'} not in view`;
  lost.href = linkTo({ screen: 'lost' });
}

/** @param {HTMLButtonElement} live */
function showLive(live) {
  const state = connection.value;
  const follows = follow.value;
  live.hidden = !lives.value;
  live.className = `quiet head-live is-${state}`;
  live.setAttribute('aria-pressed', String(follows));
  const words = { open: '', lost: ', reconnecting', ended: ', not live any more', off: '' };
  live.replaceChildren(
    h('span', { class: 'dot', 'aria-hidden': 'true' }),
    `${follows ? 'following the end' : 'follow the end'}${words[state]}`);
  live.title = follows ? 'The cursor stays at the end while the session grows (f)' : 'Go to the end and stay there (f)';
}

/** @param {Timeline} now @param {number} request @returns {Node[]} */
function requestNodes(now, request) {
  if (request < 0) return [h('span', { class: 'muted', text: 'Nothing was sent yet.' })];
  const { turn, iteration, position, time, model, count } = now.requests;
  const names = [];
  if (turn[request] >= 0) names.push(`turn ${turn[request]}`);
  if (iteration[request] >= 0) names.push(`iteration ${iteration[request]}`);
  const named = names.join(', ') || `request @${position[request]}`;
  return [
    h('strong', { text: named }),
    h('span', { text: ` · position ${position[request]}` }),
    h('span', { class: 'muted', text: ` · ${countText(request + 1)} of ${countText(count)}` }),
    h('span', { class: 'muted wide-only', text: ` · ${utcText(time[request])}` }),
    model[request] < 0 ? null : h('span', { class: 'muted', text: ` · ${shownText(now.models[model[request]])}` }),
  ].filter((one) => one !== null);
}

/**
 * Tokens of the request, and the share of the budget that they use.
 * @param {Timeline} now
 * @param {number} request
 * @returns {Node[]}
 */
function sizeNodes(now, request) {
  const { total, estimated, budget } = now.requests;
  const tokens = tokensText(total[request], estimated[request]);
  const how = estimated[request] ? 'estimated' : 'counted by the provider';
  const nodes = [h('span', null, h('strong', { text: tokens }), ` tokens, ${how}`)];
  if (budget[request] > 0) {
    const share = total[request] / budget[request];
    nodes.push(
      h('span', { class: 'meter', 'aria-hidden': 'true', vars: { '--share': `${Math.min(1, share) * 100}%` } }),
      h('span', { class: 'muted', text: `${percentText(share)} of ${countText(budget[request])}` }),
    );
  }
  return nodes;
}

/**
 * How the request is known, in a word; unfolded, what that means.
 * @param {HTMLElement} known
 * @param {Timeline} now
 * @param {number} request
 */
function showKnown(known, now, request) {
  const state = verification(now, request).value;
  const { word, sign } = verdictWord(now, request, state);
  // A digest that an importer made is no proof of what was sent.
  known.className = `head-known is-${sign === '' ? 'claimed' : state}`;
  known.replaceChildren(
    h('summary', { text: sign === '' ? word : `${word} ${sign}` }),
    h('div', { class: 'known-about' },
      h('p', { text: meaningOfKnown(now, request, state) }),
      h('p', { class: 'mono digest', text: now.requests.digest[request] })),
  );
}
