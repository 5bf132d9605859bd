/** One message of a person that is not in view: its text, why, since when, what stands for it. */

import { h } from '../core/element.js';
import { factsView } from '../parts/facts.js';
import { countText, utcText } from '../parts/numbers.js';
import { isInView, standingMark } from '../parts/standing.js';
import { linkTo } from '../core/place.js';
import { source } from '../core/state.js';
import { placeOfText } from '../timeline/entries.js';
import { compactionSummary, keptInSummary, reasonText } from './lost-words.js';
import { spokenTexts, spokenView } from './spoken-text.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('./choosing.js').Choice} Choice */
/** @typedef {import('./lost-rows.js').LostRow} LostRow */

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
      row.compaction >= 0 ? ['By', compactionSummary(timeline, row.compaction)] : null,
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
