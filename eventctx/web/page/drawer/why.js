// The tab Why: in a sentence, then the facts, then what the engine adds, then the command that says
// the same. The sentence and the facts need no engine, so they are in an exported file, too.

import { h } from '../core/element.js';
import { kindWord, standingAt } from '../parts/standing.js';
import { commandLine } from '../parts/copying.js';
import { firstLine, shownText } from '../parts/text.js';
import { linkTo } from '../core/place.js';
import { source } from '../core/state.js';
import { bodyOf } from '../panes/bodies.js';
import { messageLink, runsText } from '../panes/message-head.js';
import { messageLine } from '../panes/message-line.js';
import { messageView } from '../panes/message.js';
import { whyFacts, whySentence } from '../panes/why-words.js';
import { factsView } from '../parts/facts.js';
import { extraEntries, placeOfText, standsFor } from '../timeline/entries.js';
import { HUMAN_KIND } from '../timeline/groups.js';

/** @typedef {import('./drawer.js').DrawerSubject} DrawerSubject */
/** @typedef {import('../panes/why-words.js').WhyFact} WhyFact */
/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

const SETTLE_MS = 120;

/** @param {DrawerSubject} subject @param {HTMLElement} panel */
export async function whyPanel(subject, panel) {
  const { now, request, alive } = subject;
  const isChosen = subject.message !== null && subject.message < now.messages.count;
  const suggested = isChosen ? null : suggestedMessage(now, request);
  const message = isChosen ? subject.message : suggested?.message ?? null;
  if (message === null) {
    panel.replaceChildren(suggestionLine(null));
    return;
  }
  const { kind, position, index } = now.messages;
  const line = h('span', { class: 'why-line' });
  const facts = factList(whyFacts(now, message, request));
  panel.replaceChildren(
    h('div', { class: 'why' },
      isChosen ? null : suggestionLine(suggested),
      h('p', { class: 'why-about' }, messageLink(message), h('span', { class: 'row-kind', text: kindWord(kind[message]) }), line),
      h('p', { class: 'why-sentence', text: whySentence(now, message, request) }),
      facts, h('div', { class: 'why-instead' }, insteadViews(subject, message)), commands(subject, message)));
  void bodyOf(now.session, { position: position[message], index: index[message] }).then((body) => {
    if (alive()) line.textContent = firstLine(messageLine(body), 160);
  }, () => undefined);
  if (!isChosen || !source.can.answers) return;
  // Who steps through requests asks at the one where they stop.
  await settled();
  if (!alive()) return;
  const answer = await source.answer(now.session, 'why', { number: message, position: now.requests.position[request] });
  if (alive()) facts.replaceWith(factList([...whyFacts(now, message, request), ...answerFacts(answer)]));
}

/** @returns {Promise<void>} after a pause in which a person would have gone on */
function settled() {
  return new Promise((resolve) => {
    setTimeout(resolve, SETTLE_MS);
  });
}

/**
 * What stands for the message in this request: a summary, or its shortened text.
 * @param {DrawerSubject} subject
 * @param {number} message
 */
function insteadViews(subject, message) {
  const { now, request } = subject;
  const { what, extra } = standingAt(now, message, request);
  const entries = what === 'shortened' && extra !== null
    ? [now.entry(extra)]
    : extraEntries(now, request).filter((entry) => standsFor(entry, message));
  return entries.map((entry) => insteadView(subject, entry, entry.extra?.stands_for?.length
    ? `Instead: the ${entry.extra.name ?? 'text'} that stands for ${runsText(entry.extra.stands_for)}`
    : 'Instead: the shortened text'));
}

/**
 * The text of an entry, to unfold; nothing where it has none of its own.
 * @param {DrawerSubject} subject
 * @param {ReturnType<Timeline['entry']>} entry
 * @param {string} title
 * @param {boolean} [open]
 */
export function insteadView({ now, alive }, entry, title, open = false) {
  const place = placeOfText(entry);
  if (place === null) return null;
  const text = h('div', { class: 'row-text' });
  void bodyOf(now.session, place).then((body) => {
    if (alive()) text.replaceChildren(messageView(body));
  }, () => undefined);
  return h('details', { class: 'instead', open }, h('summary', { text: title }), text);
}

/**
 * What only the engine knows: the settings that governed the rule, pins, what came back.
 * @param {any} answer
 * @returns {WhyFact[]}
 */
function answerFacts(answer) {
  /** @type {WhyFact[]} */
  const facts = [];
  const ruling = answer.ruling ?? answer.stays;
  if (answer.stays && answer.standing === 'whole') {
    facts.push({ label: 'stays', text: `${answer.stays.reason || 'kept'}: ${answer.stays.rule || 'so decided by the plan'}` });
  }
  if (ruling?.settings?.length) {
    const settings = ruling.settings.map((/** @type {any} */ one) => `${one.name} ${JSON.stringify(one.value)}`);
    facts.push({ label: 'settings', text: settings.join(', ') });
  }
  if (answer.restored) facts.push({ label: 'restored', text: `at ${answer.restored.at}` });
  if (answer.pinned) facts.push({ label: 'pinned', text: answer.pinned_by ? `at ${answer.pinned_by.at}` : 'yes' });
  if (answer.erased) facts.push({ label: 'erased', text: `at ${answer.erased.at}` });
  return facts;
}

/** @param {WhyFact[]} facts */
function factList(facts) {
  return factsView(facts.map(({ label, text, message, position }) => [label,
    message === undefined && position === undefined
      ? shownText(text)
      : h('a', { href: linkTo(message === undefined ? { at: position } : { message }), text: shownText(text) })]));
}

/** @param {DrawerSubject} subject @param {number} message */
function commands({ now, request }, message) {
  const position = now.requests.position[request];
  return h('p', { class: 'why-command' },
    commandLine(['eventctx', 'why', now.session, message, '--position', position]));
}

/**
 * What is explained while nothing is chosen: a message of the person that the request was not sent, one with a demand before others; else the
 * newest that the person wrote.
 * @param {Timeline} now
 * @param {number} request
 * @returns {{message: number, isLost: boolean} | null}
 */
export function suggestedMessage(now, request) {
  const lost = now.wordsOutOfView(request).map(({ number }) => number);
  const missed = lost.find((number) => now.messages.demands[number] > 0) ?? lost[0];
  if (missed !== undefined) return { message: missed, isLost: true };
  let message = now.requests.last[request] ?? -1;
  while (message >= 0 && now.messages.kind[message] !== HUMAN_KIND) message -= 1;
  return message < 0 ? null : { message, isLost: false };
}

/**
 * Why this message is shown, and how to choose another.
 * @param {{isLost: boolean} | null} suggested
 * @returns {HTMLElement}
 */
function suggestionLine(suggested) {
  const about = suggested === null ? '' : suggested.isLost ? 'You wrote this, and it is not in view. ' : 'Your newest message. ';
  return h('p', { class: 'muted why-suggested' }, `${about}Click any message to read why it is sent or not, or press `,
    h('kbd', { text: 'j' }), ' or ', h('kbd', { text: 'n' }), '.');
}
