/** `<ctx-integrity>`: what of a session is proven, what is derived, and what nobody knows. */

import { AROUND_WORDS } from '../compare/view-pairs.js';
import { define, h } from '../core/element.js';
import { checkButton, lossesOfHooks, receiptView, verifiedLog, verifiedViews } from '../integrity/checks.js';
import {
  breaksByReason, changedOnTheWay, changesOverRequests, KNOWN_MEANINGS, requestsByKnown,
} from '../integrity/known-requests.js';
import { counted, countText } from '../parts/numbers.js';
import { shownText } from '../parts/text.js';
import { linkTo } from '../core/place.js';
import { source, timeline } from '../core/state.js';
import { jsonTwin } from '../parts/json-twin.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

const CHANGES_SHOWN = 60;

define('ctx-integrity', (host) => {
  host.classList.add('screen');
  const facts = h('div');
  /** @type {Timeline | null} */
  let shown = null;
  let showedViews = false;
  host.effect(() => {
    const now = timeline.value;
    if (now === null) return;
    now.version.value;
    const wasSent = now.requests.count > 0;
    // Checks that somebody started stay while a session grows.
    if (now !== shown || wasSent !== showedViews) {
      host.replaceChildren(h('h1', { tabindex: '-1', text: 'Integrity' }), checksSection(now), facts);
    }
    shown = now;
    showedViews = wasSent;
    facts.replaceChildren(
      ...(wasSent ? [knownSection(now)] : []), originSection(now),
      ...(wasSent ? [changesSection(now)] : []), jsonTwin(now.session, 'audit') ?? '');
  });
});

/** @param {Timeline} now */
function checksSection(now) {
  const { answers } = source.can;
  return section('Checks',
    h('h3', { text: 'Is the log as it was written?' }),
    h('p', null, 'Each record holds the digest of the one before it, so no record can be changed, dropped or moved unseen.'),
    answers ? checkButton('Verify the log', (tell) => verifiedLog(now, tell)) : null,
    receiptView(now),
    h('h3', { text: 'Does this page show what was sent?' }),
    now.requests.count === 0 ? h('p', { text: 'Nothing was sent yet.' }) : [
      h('p', null, 'The browser derives each request’s view by itself. Its digest must be the one that was recorded with the request.'),
      checkButton(`Check ${counted(now.requests.count, 'view')} here`, (tell) => verifiedViews(now, tell)),
    ],
    answers ? [
      h('h3', { text: 'Did hooks miss anything?' }),
      checkButton('Check the hooks', (tell) => lossesOfHooks(now, tell), ''),
    ] : null,
  );
}

/** @param {Timeline} now */
function knownSection(now) {
  const counts = requestsByKnown(now);
  const { additions, missing, floor, untold } = changedOnTheWay(now);
  return section('How sure we are of each request',
    h('table', { class: 'known-table' },
      h('caption', { class: 'only-heard', text: 'Requests by how they are known' }),
      h('thead', null, h('tr', null,
        h('th', { scope: 'col', text: 'Known as' }),
        h('th', { scope: 'col', class: 'number', text: 'Requests' }),
        h('th', { scope: 'col', text: 'Meaning' }))),
      h('tbody', null, KNOWN_MEANINGS.map(([name, meaning], code) =>
        h('tr', { class: counts[code] === 0 ? 'none' : '' },
          h('th', { scope: 'row', text: name }),
          h('td', { class: 'number', text: countText(counts[code]) }),
          h('td', { text: meaning }))))),
    h('ul', { class: 'plain-facts' },
      additions > 0 ? h('li', { text: `${counted(additions, 'request')} reached the model with messages that were added on the way.` }) : null,
      untold > 0 ? h('li', { text: `What the host added to ${counted(untold, 'request')} on the way is not known.` }) : null,
      missing > 0 ? h('li', { text: `${counted(missing, 'request')} reached the model without messages that had been prepared.` }) : null,
      floor > 0 ? h('li', { text: `${counted(floor, 'request')} went out above the budget, with only what must stay.` }) : null));
}

/** @param {Timeline} now */
function originSection(now) {
  const { mirror, importer, parent, links } = now;
  const rows = [
    mirror === null ? null : h('li', null,
      'Imported from ', h('code', { text: shownText(mirror) }), importer === null ? '' : ` (${importer})`,
      '. It changes only when that file is imported again; to continue it, fork it.'),
    parent === null ? null : h('li', null,
      'Forked from ', h('a', { href: linkTo({ session: parent.session, screen: 'session', at: parent.at }), text: parent.session }), ` at @${parent.at}.`),
    ...links.map((link) => h('li', null,
      `${LINK_WORDS[link.relation] ?? link.relation}${link.kind === null ? '' : ` (${link.kind})`}: `,
      h('a', { href: linkTo({ session: link.session, screen: 'session' }), text: link.session }),
      h('span', { class: 'muted', text: ` noted @${link.position}` }))),
  ];
  return section('Where it comes from',
    h('ul', { class: 'plain-facts' },
      rows.every((row) => row === null) ? h('li', { text: 'Written by eventctx itself; no other session is linked.' }) : rows,
      h('li', { text: `${counted(now.records, 'record')}, the last @${now.head}.` })));
}

/** @type {Readonly<Record<string, string>>} */
const LINK_WORDS = { child: 'Started a session', parent: 'Started by', fork: 'Forked as' };

/** @param {Timeline} now */
function changesSection(now) {
  const found = changesOverRequests(now);
  const breaks = breaksByReason(now);
  const unknown = /** @type {const} */ (['system', 'tools']).filter((what) => !found.some((one) => one.what === what));
  return section('What changed around the messages',
    unknown.length === 0 ? null : h('p', { class: 'muted', text: `Not recorded: ${unknown.map((what) => AROUND_WORDS[what].toLowerCase()).join(', ')}.` }),
    found.length === 0 ? null : h('table', { class: 'changes-table' },
      h('caption', { class: 'only-heard', text: 'Changes of model, system prompt, tools and budget' }),
      h('thead', null, h('tr', null,
        h('th', { scope: 'col', text: 'Request' }), h('th', { scope: 'col', text: 'What' }),
        h('th', { scope: 'col', text: 'Before' }), h('th', { scope: 'col', text: 'From here on' }))),
      h('tbody', null, found.slice(0, CHANGES_SHOWN).map((one) => h('tr', null,
        h('td', null, h('a', { href: linkTo({ screen: 'session', at: now.requests.position[one.request] }), text: now.name(one.request) })),
        h('td', { text: AROUND_WORDS[one.what] }),
        h('td', { text: one.before ?? 'not known' }),
        h('td', { text: one.after }))))),
    found.length > CHANGES_SHOWN ? h('p', { class: 'muted', text: `and ${countText(found.length - CHANGES_SHOWN)} more.` }) : null,
    breaks.length === 0 ? null : [
      h('p', { text: 'Requests that began differently than the one before, so that a cache missed, and why:' }),
      h('ul', { class: 'plain-facts' }, breaks.map(([reason, requests]) =>
        h('li', null, `${reason.replaceAll('_', ' ')} ${countText(requests.length)}×: `, ...requestLinks(now, requests)))),
    ]);
}

/** Each leads to what changed since the one before. @param {Timeline} now @param {readonly number[]} requests */
function requestLinks(now, requests) {
  const more = requests.length - CHANGES_SHOWN;
  return [
    ...requests.slice(0, CHANGES_SHOWN).flatMap((request, at) => [
      at === 0 ? '' : ', ',
      h('a', { href: linkTo({ screen: 'session', at: now.requests.position[request], tab: 'diff' }), text: now.name(request) }),
    ]),
    more > 0 ? ` and ${countText(more)} more` : '',
  ];
}

/** @param {string} title @param {...import('../core/element.js').Children} content */
function section(title, ...content) {
  return h('section', { class: 'integrity-part' }, h('h2', { text: title }), ...content);
}
