// The tab Why: in a sentence, then the facts, then what the engine adds, then the command that says
// the same. The sentence and the facts need no engine, so they are in an exported file, too.

import { kindWord } from '../charts/request-words.js';
import { h } from '../core/element.js';
import { commandLine } from '../parts/command-line.js';
import { firstLine, shownText } from '../parts/text.js';
import { linkTo } from '../core/place.js';
import { source } from '../core/state.js';
import { bodyOf } from './bodies.js';
import { messageLink, runsText } from './message-head.js';
import { messageLine } from './message-line.js';
import { messageView } from './message.js';
import { standingAt } from './standing-words.js';
import { suggestedMessage, suggestionLine } from './suggested.js';
import { whyFacts, whySentence } from './why-words.js';

/** @typedef {import('./drawer.js').DrawerSubject} DrawerSubject */
/** @typedef {import('./why-words.js').WhyFact} WhyFact */

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
  const stand = h('div', { class: 'why-instead' });
  panel.replaceChildren(
    h('div', { class: 'why' },
      isChosen ? null : suggestionLine(suggested),
      h('p', { class: 'why-about' }, messageLink(message), h('span', { class: 'row-kind', text: kindWord(kind[message]) }), line),
      h('p', { class: 'why-sentence', text: whySentence(now, message, request) }),
      facts, stand, commands(subject, message)));
  void bodyOf(now.session, { position: position[message], index: index[message] }).then((body) => {
    if (alive()) line.textContent = firstLine(messageLine(body), 160);
  }, () => undefined);
  showInstead(subject, message, stand);
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
 * @param {HTMLElement} into
 */
function showInstead({ now, request, alive }, message, into) {
  const { what, extra } = standingAt(now, message, request);
  const ids = what === 'shortened' && extra !== null ? [extra] : standInsOf(now, request, message);
  for (const id of ids) {
    const { position, index, extra: about } = now.entry(id);
    if (position === null || index === null) continue;
    const title = about?.stands_for?.length
      ? `Instead: the ${about.name ?? 'text'} that stands for ${runsText(about.stands_for)}`
      : 'Instead: the shortened text';
    const text = h('div', { class: 'row-text' });
    into.append(h('details', { class: 'instead' }, h('summary', { text: title }), text));
    void bodyOf(now.session, { position, index }).then((body) => {
      if (alive()) text.replaceChildren(messageView(body));
    }, () => undefined);
  }
}

/** @param {import('../timeline/timeline.js').Timeline} now @param {number} request @param {number} message */
function standInsOf(now, request, message) {
  return [...now.view(request)].filter((id) =>
    id < 0 && now.entry(id).extra?.stands_for?.some(([first, last]) => first <= message && message <= last));
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
  return h('dl', { class: 'why-facts' }, facts.flatMap(({ label, text, message, position }) => [
    h('dt', { text: label }),
    h('dd', null, message === undefined && position === undefined
      ? shownText(text)
      : h('a', { href: linkTo(message === undefined ? { at: position } : { message }), text: shownText(text) })),
  ]));
}

/** @param {DrawerSubject} subject @param {number} message */
function commands({ now, request }, message) {
  const position = now.requests.position[request];
  return h('p', { class: 'why-command' },
    commandLine(['eventctx', 'why', now.session, message, '--position', position]));
}
