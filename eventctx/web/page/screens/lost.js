/**
 * `<ctx-lost>`: a person's words that the model was not sent at the cursor, each with its reason.
 *
 * The upper part needs only columns and texts, so it works in an exported file, too. Below it stands
 * the engine's own answer where there is an engine to ask.
 */

import { define, h } from '../core/element.js';
import { choiceOfMessages } from '../lost/choosing.js';
import { lostAnswer } from '../lost/lost-answer.js';
import { lostCard } from '../lost/lost-card.js';
import { lostRows, shortenedWords } from '../lost/lost-words.js';
import { appendRows } from '../parts/more-rows.js';
import { linkTo } from '../core/place.js';
import { cursor, messageOf, source, timeline } from '../core/state.js';
import { cursorLine, requestTitle } from '../parts/cursor-line.js';
import { jsonTwin } from '../parts/json-twin.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('../lost/choosing.js').Choice} Choice */
/** @typedef {import('../lost/lost-answer.js').LostFilter} LostFilter */
/** @typedef {import('../lost/lost-words.js').LostRow} LostRow */

const CARDS_AT_ONCE = 40;
/** A person who steps through requests must not ask the engine about each. */
const ASK_AFTER_MS = 350;

define('ctx-lost', (host) => {
  host.classList.add('screen');
  const title = h('h1', { tabindex: '-1' });
  const lead = h('p', { class: 'lead' });
  const cards = h('div', { class: 'lost-cards' });
  const answer = h('section', { class: 'lost-all', 'aria-labelledby': 'lost-all-title', hidden: true });
  const choice = choiceOfMessages(host, () => timeline.value);
  /** @type {LostFilter} */
  const filter = { kind: null, by: 'kind', whole: false };
  host.replaceChildren(cursorLine(host, 'lost'), title, lead, cards, answer, choice.bar);

  let shown = '';
  let session = '';
  host.effect(() => {
    const name = timeline.value?.session ?? '';
    // Numbers of one session name other messages in another.
    if (name !== session) choice.clear();
    session = name;
  });
  host.effect(() => {
    const now = timeline.value;
    if (now === null) return;
    now.version.value;
    const request = cursor.value;
    const rows = lostRows(now, request);
    // A session that grows must not take the card away that a person reads.
    const key = JSON.stringify([now.session, rows.map((row) => [row.number, row.what, row.fell, row.standsIn.length])]);
    title.textContent = request < 0 ? 'Nothing was sent yet' : titleText(rows);
    lead.replaceChildren(...leadNodes(now, request, rows));
    if (key !== shown) {
      cards.replaceChildren();
      appendRows(cards, rows, (row) => lostCard(now, row, choice), { first: CARDS_AT_ONCE, step: CARDS_AT_ONCE });
    }
    shown = key;
  });
  host.effect(() => askLater(answer, filter, choice));
});

/** @param {LostRow[]} rows */
function titleText(rows) {
  if (rows.length === 0) return 'All of your messages are in view';
  return rows.length === 1 ? '1 of your messages is not in view' : `${rows.length} of your messages are not in view`;
}

/** @param {Timeline} now @param {number} request @param {LostRow[]} rows @returns {(string | Node)[]} */
function leadNodes(now, request, rows) {
  if (request < 0) return [];
  const demands = rows.reduce((sum, row) => sum + row.demands, 0);
  const partly = shortenedWords(now, request);
  return [
    rows.length === 0 ? `All that you wrote before it is in ${requestTitle(now, request)}. `
      : `You wrote ${rows.length === 1 ? 'this' : 'these'}, and ${requestTitle(now, request)} did not hold ${rows.length === 1 ? 'it' : 'them'}. `,
    demands === 0 ? '' : `${demands === 1 ? '1 sentence in them demands' : `${demands} sentences in them demand`} something, such as “never …” or “make sure …”. `,
    ...(partly.length === 0 ? [] : [
      'Only a part was sent of ',
      ...partly.slice(0, 20).flatMap((number, at) => [
        at === 0 ? '' : ', ',
        h('a', { href: linkTo({ screen: 'session', message: number, tab: 'why' }), text: `#${number}` }),
      ]),
      '. ',
    ]),
  ];
}

/**
 * Asks the engine once the cursor rests; an answer that comes too late is thrown away.
 *
 * @param {HTMLElement} answer
 * @param {LostFilter} filter
 * @param {Choice} choice
 */
function askLater(answer, filter, choice) {
  const now = timeline.value;
  const request = cursor.value;
  if (now === null || !source.can.answers) return undefined;
  const last = request === now.requests.count - 1;
  const turn = request < 0 ? -1 : now.requests.turn[request];
  let wanted = true;
  const timer = setTimeout(async () => {
    /** @type {Record<string, number>} */
    const parameters = last || turn < 0 ? {} : { turn };
    const about = last || turn < 0 ? 'now' : `in the last request of turn ${turn}`;
    try {
      const found = await source.answer(now.session, 'lost', parameters);
      if (!wanted) return;
      answer.hidden = request < 0 && found.messages.left === 0;
      if (answer.hidden) return;
      answer.replaceChildren(
        h('h2', { id: 'lost-all-title', text: `${found.messages.left === 0 ? 'What is in view' : 'What else left the view'}, ${about}` }), lostAnswer(now, found, filter, choice),
        jsonTwin(now.session, 'lost', parameters) ?? '');
    } catch (error) {
      if (!wanted) return;
      answer.replaceChildren(
        h('h2', { id: 'lost-all-title', text: 'What else left the view' }),
        h('p', { class: 'bad', text: `This could not be answered: ${messageOf(error)}` }));
      answer.hidden = false;
    }
  }, ASK_AFTER_MS);
  return () => {
    wanted = false;
    clearTimeout(timer);
  };
}
