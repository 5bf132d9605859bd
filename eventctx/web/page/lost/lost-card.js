/** One message of a person that is not in view: its text with its demands marked, why, since when, what stands for it. */

import { h } from '../core/element.js';
import { capitalised, compactionSummary } from '../panes/why-words.js';
import { factsView } from '../parts/facts.js';
import { countText, utcText } from '../parts/numbers.js';
import { isInView, standingMark } from '../parts/standing.js';
import { linkTo } from '../core/place.js';
import { source } from '../core/state.js';
import { placeOfText } from '../timeline/entries.js';
import { keptInSummary, reasonText } from './lost-words.js';
import { partsOf } from '../source/message-parts.js';
import { firstLine, shownText } from '../parts/text.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('./choosing.js').Choice} Choice */
/** @typedef {import('./lost-words.js').LostRow} LostRow */

/**
 * Its texts are asked for when the card is shown: the message, and what stands for it.
 *
 * @param {Timeline} timeline
 * @param {LostRow} row
 * @param {Choice} choice
 * @returns {HTMLElement}
 */
export function lostCard(timeline, row, choice) {
  const spoken = h('div', { class: 'spoken waiting', 'aria-busy': 'true', text: '…' });
  const kept = h('span');
  void fillTexts(timeline, row, spoken, kept);
  const { time, turn } = timeline.messages;
  const said = turn[row.number] > 0 ? `said in turn ${turn[row.number]}` : 'said';
  return h('article', { class: 'lost-card', 'aria-label': `Message ${row.number}` },
    h('header', null,
      choice.box(row.number, `Choose message ${row.number} to bring it back`),
      h('a', {
        class: 'lost-why',
        href: linkTo(whereItFell(timeline, row)),
        'aria-label': `Why message ${row.number} is not in view, and where it fell`,
      }, h('span', { class: 'lost-number', text: `#${row.number}` }), 'See where it fell, and why →'),
      standingMark(row.what),
      h('span', { class: 'muted', text: `${said} · ${utcText(time[row.number])}` })),
    spoken,
    factsView([
      ['Missing', sinceNodes(timeline, row)],
      ['Why', reasonText(row)],
      row.compaction >= 0 ? ['By', capitalised(compactionSummary(timeline, row.compaction))] : null,
      ['Instead', insteadNodes(row, kept)],
    ]),
  );
}

/** @param {Timeline} timeline @param {LostRow} row @returns {Partial<import('../core/place.js').Place>} */
function whereItFell(timeline, { number, fell }) {
  const at = fell < 0 ? null : timeline.requests.position[fell];
  return { screen: 'session', at, message: number, tab: 'why' };
}

/** @param {Timeline} timeline @param {LostRow} row */
function sinceNodes(timeline, row) {
  if (row.fell < 0) return ['from the beginning'];
  const { position, time } = timeline.requests;
  const was = row.fell - 1;
  const sent = was >= 0 && isInView(timeline.standing(row.number, was).what);
  const before = sent ? ` · last sent in ${timeline.name(was)}` : '';
  return [
    'since ',
    h('a', { href: linkTo(whereItFell(timeline, row)) }, `request ${timeline.name(row.fell)}`),
    h('span', { class: 'muted', text: ` @${position[row.fell]} · ${utcText(time[row.fell])}${before}` }),
  ];
}

/** @param {LostRow} row @param {HTMLElement} kept what the text holds of the demands, known later */
function insteadNodes({ standsIn }, kept) {
  if (standsIn.length === 0) return ['nothing was sent instead'];
  const tokens = standsIn.reduce((sum, entry) => sum + entry.tokens, 0);
  const [{ extra, position }] = standsIn;
  const name = standsIn.length === 1
    ? `the ${(extra?.name ?? 'text').replaceAll('_', ' ')} of @${position}`
    : `${standsIn.length} texts, such as the ${extra?.name ?? 'text'} of @${position}`;
  return [`${name}, ~${countText(tokens)} tokens, in view`, kept];
}

/** @param {Timeline} timeline @param {LostRow} row @param {HTMLElement} spoken @param {HTMLElement} kept */
async function fillTexts(timeline, row, spoken, kept) {
  const { session, messages: { position, index } } = timeline;
  const own = { position: position[row.number], index: index[row.number] };
  const others = row.standsIn.flatMap((entry) => placeOfText(entry) ?? []);
  try {
    const [[message, ...standsIn], [demands = []]] = await Promise.all([
      source.bodies(session, [own, ...others]),
      row.demands === 0 ? [] : source.demands(session, [own]),
    ]);
    spoken.replaceWith(spokenView(message, demands));
    const held = keptInSummary(demands, standsIn.filter(Boolean).map(spokenTexts));
    kept.textContent = held === '' ? '' : `; ${held}`;
  } catch (error) {
    spoken.replaceWith(h('p', { class: 'spoken bad', text: `Its text could not be read: ${error}` }));
  }
}

/** Longer texts begin folded; a text of megabytes is cut, its whole is in the session. */
const UNFOLDED_CHARACTERS = 400;
const MOST_SPOKEN_CHARACTERS = 20_000;

/** The plain texts of a message. @param {any} message @returns {string[]} */
function spokenTexts(message) {
  return partsOf(message)
    .filter(({ kind }) => kind === 'text')
    .map(({ value }) => String(value));
}

/**
 * The text, with its demands marked; of a long one the demands stand first, one a line.
 *
 * @param {any} message null where it was erased, or where there are no texts
 * @param {string[]} demands the sentences in it that demand something
 * @returns {HTMLElement}
 */
function spokenView(message, demands) {
  if (message === null || message === undefined) {
    return h('p', { class: 'spoken muted', text: 'Its text is not here: it was erased, or left out.' });
  }
  const whole = spokenTexts(message).join('\n');
  const isLong = whole.length > UNFOLDED_CHARACTERS;
  return h('div', { class: 'spoken' },
    isLong && demands.length > 0
      ? h('ul', { class: 'demands' },
        demands.map((demand) => h('li', null, h('mark', { text: shownText(demand) }))))
      : null,
    !isLong
      ? markedText(whole, demands)
      : h('details', null,
        h('summary', null,
          h('span', { class: 'beginning', text: firstLine(whole, 160) }),
          h('span', { class: 'muted', text: ` (${countText(whole.length)} characters)` })),
        markedText(whole, demands)),
  );
}

/** @param {string} text @param {string[]} demands */
function markedText(text, demands) {
  const cut = text.slice(0, MOST_SPOKEN_CHARACTERS);
  return h('p', { class: 'spoken-text' },
    markedPieces(cut, demands).map((piece) =>
      h(piece.demand ? 'mark' : 'span', { text: shownText(piece.text) })),
    cut.length < text.length ? h('span', { class: 'muted', text: ' … the rest is in the session' }) : null,
  );
}

/**
 * A text in pieces, of which those that are demands are marked: joined, they are the text.
 *
 * @param {string} text
 * @param {string[]} demands
 * @returns {{text: string, demand: boolean}[]}
 */
export function markedPieces(text, demands) {
  const places = demands
    .map((demand) => ({ from: text.indexOf(demand), to: text.indexOf(demand) + demand.length }))
    .filter(({ from }) => from >= 0)
    .sort((a, b) => a.from - b.from);
  /** @type {{text: string, demand: boolean}[]} */
  const pieces = [];
  let at = 0;
  for (const { from, to } of places) {
    if (from < at) continue;
    if (from > at) pieces.push({ text: text.slice(at, from), demand: false });
    pieces.push({ text: text.slice(from, to), demand: true });
    at = to;
  }
  if (at < text.length) pieces.push({ text: text.slice(at), demand: false });
  return pieces;
}
