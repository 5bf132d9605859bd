/** A request of this session and one of another: what only one of them shows, and why the other does not. */

import { h } from '../core/element.js';
import { grouped } from '../core/keyed.js';
import { go, place } from '../core/place.js';
import { messageOf, sessions, source } from '../core/state.js';
import { messageLine } from '../panes/message-line.js';
import { messageView } from '../panes/message.js';
import { jsonTwin } from '../parts/json-twin.js';
import { counted, countText } from '../parts/numbers.js';
import { standingWord } from '../parts/standing.js';
import { firstLine, shownText } from '../parts/text.js';
import { roleWord } from '../search/hit-row.js';
import { groupOf, LOG_GROUPS, SCREEN_GROUPS } from '../timeline/groups.js';
import { foldingRow } from './pair-rows.js';
import { tokensOfTwo } from './token-table.js';

/** An answer of `eventctx diff A B --json`. @typedef {Record<string, any>} SessionsDiff */

/** The field for the other session. @param {import('../core/element.js').Host} host */
export function sessionPicker(host) {
  const names = h('datalist', { id: 'other-sessions' });
  const field = h('input', {
    type: 'text', list: 'other-sessions', class: 'session-field', placeholder: 'Its name', autocomplete: 'off', spellcheck: 'false',
    on: { change: () => go({ query: field.value.trim() }, { replace: true }) },
  });
  host.effect(() => {
    if (document.activeElement !== field) field.value = place.value.query;
    names.replaceChildren(...(sessions.value ?? []).filter((row) => row.session !== place.value.session)
      .map((row) => h('option', { value: row.session, label: shownText(row.title ?? '') })));
  });
  return h('label', null, 'With session ', field, names);
}

/**
 * @param {string} session
 * @param {string} other '' before one was chosen
 * @param {number} position of the request of this session; -1: there is none
 * @returns {Promise<(Node | string)[]>}
 */
export async function twoSessions(session, other, position) {
  if (other === '' || position < 0) return [h('p', { class: 'lead', text: 'Choose a session: its last request is compared with the one at the cursor.' })];
  const asked = { with: other, before: position };
  try {
    const found = await source.answer(session, 'diff', { ...asked, parts: 1 });
    return [...differenceNodes(found), jsonTwin(session, 'diff', asked) ?? ''];
  } catch (error) {
    return [h('p', { class: 'bad', role: 'alert', text: shownText(messageOf(error)) })];
  }
}

/** @param {SessionsDiff} found */
function differenceNodes(found) {
  const names = [found.first_session, found.second_session];
  const sides = [found.first, found.second].map((side, at) => shownText(`${names[at]} ${side.request ?? ''} (@${side.position})`));
  const sections = grouped(/** @type {any[]} */ ([...found.differences, ...found.insertions]), (one) => sectionTitle(one, names));
  return [
    h('p', { class: 'lead', text: `${sides.join(' and ')}: ${counted(found.both, 'message')} alike.` }),
    tokensOfTwo(tokensOfSide(found.first), tokensOfSide(found.second), names.map((name) => firstLine(name, 24))),
    ...[...sections].map(([title, items]) => h('details', { class: 'segment', open: items.length <= 30 },
      h('summary', null, h('span', { text: shownText(title) }), h('span', { class: 'muted', text: ` ${countText(items.length)}` })),
      h('ul', { class: 'pair-rows' }, items.map(differenceRow)))),
  ];
}

/** @param {any} one @param {string[]} names */
function sectionTitle(one, names) {
  const [mine, other] = one.session === 'first' ? names : [names[1], names[0]];
  if (one.presence === undefined) return `Inserted only in ${mine}`;
  const shortened = one.presence === 'shortened';
  const how = one.other === null ? 'never added to' : `${standingWord(one.presence)} in`;
  const why = one.ruling === null ? '' : `: ${one.ruling.rule}`;
  return `${shortened ? 'Whole in' : 'Only in'} ${mine}, ${how} ${other}${why}`;
}

/** @param {any} one a message or an insertion */
function differenceRow(one) {
  return foldingRow(h('span', { class: 'pair-name', text: one.name ?? '' }), [
    h('span', { class: 'kind-word', text: shownText(one.role === undefined ? one.kind : roleWord(one)) }),
    h('span', { class: 'pair-line', text: one.message === null ? 'erased' : firstLine(messageLine(one.message)) }),
  ], (inside) => inside.replaceChildren(messageView(one.message, { detail: 2 })));
}

/** @param {any} side */
function tokensOfSide({ groups, figures }) {
  const sums = SCREEN_GROUPS.map(() => 0);
  for (const { group, tokens } of groups) sums[groupOf(LOG_GROUPS.indexOf(group))] += tokens;
  return { groups: sums, beside: figures.beside ?? -1, total: figures.total, estimated: figures.estimated };
}
