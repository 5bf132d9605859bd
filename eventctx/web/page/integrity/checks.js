/** Checks that a person starts on the integrity screen, each with its progress and its result. */

import { h } from '../core/element.js';
import { counted, countText, percentText } from '../parts/numbers.js';
import { shownText } from '../parts/text.js';
import { linkTo } from '../core/place.js';
import { commandLine } from '../parts/copying.js';
import { messageOf, source } from '../core/state.js';
import { MessageMarks, viewHolds } from '../timeline/digest.js';
import { provenText, requestsByKnown } from './known-requests.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** What a check found: `good` is null where it is no verdict. @typedef {{good: boolean | null, nodes: (Node | string)[]}} Verdict */

const DIFFERENCES_SHOWN = 20;

/** Digests of a slice take about this long, so that the page answers in between. */
const CHECK_SLICE_MS = 12;

/**
 * A button that runs a check and says what came of it.
 *
 * @param {string} label
 * @param {(tell: (text: string) => boolean) => Promise<Verdict>} run `tell` is false once the screen is gone
 * @param {string} [idle] what stands there before
 * @returns {HTMLElement}
 */
export function checkButton(label, run, idle = 'Not verified on this page yet.') {
  const says = h('p', { role: 'status', class: 'verdict', text: idle });
  const button = h('button', { type: 'button', text: label, on: { click: () => void start() } });
  async function start() {
    button.disabled = true;
    says.className = 'verdict';
    try {
      const { good, nodes } = await run((text) => {
        says.textContent = text;
        return says.isConnected;
      });
      says.className = `verdict ${good === null ? '' : good ? 'good' : 'bad'}`;
      says.replaceChildren(good === null ? '' : good ? '✓ ' : '✗ ', ...nodes);
    } catch (error) {
      says.className = 'verdict bad';
      says.textContent = `This could not be checked: ${messageOf(error)}`;
    }
    button.disabled = false;
  }
  return h('div', { class: 'check' }, button, says);
}

/**
 * Asks the engine to recompute every digest of the session's log.
 *
 * @param {Timeline} now
 * @param {(text: string) => boolean} tell
 * @returns {Promise<Verdict>}
 */
export async function verifiedLog(now, tell) {
  tell('Reading every record …');
  const answer = await source.answer(now.session, 'verify', {});
  const found = Array.isArray(answer) ? answer[0] : answer;
  if (found.ok) {
    const erased = found.erased > 0 ? ` ${counted(found.erased, 'content')} erased by intent.` : '';
    return {
      good: true,
      nodes: [`Verified: all ${counted(found.records, 'record')} and their contents agree with their digests.${erased}${signedText(found.signed ?? [], now.head)}`],
    };
  }
  const problems = found.problems.map((/** @type {any} */ one) => h('li', { text: shownText(problemText(one)) }));
  return { good: false, nodes: ['The log is damaged:', h('ul', null, problems)] };
}

/**
 * Who signed the log, and up to where.
 *
 * @param {readonly {position: number, public_key: string}[]} signed the signatures that hold
 * @param {number} head the last position
 */
function signedText(signed, head) {
  if (signed.length === 0) return ' Nobody signed it.';
  const { position, public_key: key } = signed.reduce((last, one) => (one.position > last.position ? one : last));
  const rest = head - position - 1; // the signature is a record itself
  return ` Signed by ${key.slice(0, 16)}… up to @${position}${rest > 0 ? `; ${counted(rest, 'record')} after it ${rest === 1 ? 'is' : 'are'} not` : ''}.`;
}

/**
 * Derives each view here, from the columns, and compares it with what was recorded.
 *
 * @param {Timeline} now
 * @param {(text: string) => boolean} tell
 * @returns {Promise<Verdict>}
 */
export async function verifiedViews(now, tell) {
  tell('Reading the digests of messages …');
  const marks = await source.digests(now.session);
  const someLeftOut = now.extras.some(({ mark }) => mark === '');
  if (someLeftOut || marks.length < now.messages.count) {
    return { good: null, nodes: ['The digests of the messages are not here; a page from `eventctx inspect` has them.'] };
  }
  const { checked, differ } = await checkViews(now, marks, (done, of) =>
    tell(`Derived ${countText(done)} of ${countText(of)} views (${percentText(done / of)}) …`));
  if (differ.length === 0) {
    const counts = requestsByKnown(now, checked);
    const [observed, prepared, reconstructed] = counts;
    const rebuilt = reconstructed > 0 ? ' An importer made the digests of reconstructed requests, so they prove nothing of what was sent.' : '';
    return {
      good: observed + prepared > 0 ? true : null,
      nodes: [`${counted(checked, 'view')} derived in this browser, each with the recorded digest: ${provenText(counts)}.${rebuilt}`],
    };
  }
  const links = differ.slice(0, DIFFERENCES_SHOWN).flatMap((request, at) => [
    at === 0 ? '' : ', ',
    h('a', { href: linkTo({ screen: 'session', at: now.requests.position[request] }), text: now.name(request) }),
  ]);
  const more = differ.length > DIFFERENCES_SHOWN ? ` and ${countText(differ.length - DIFFERENCES_SHOWN)} more` : '';
  return { good: false, nodes: [`${countText(differ.length)} of ${counted(checked, 'view')} have another digest: `, ...links, more] };
}

/**
 * Asks the store which of its hooks failed or were too slow: their losses are kept next to it.
 *
 * @param {Timeline} now
 * @param {(text: string) => boolean} tell
 * @returns {Promise<Verdict>}
 */
export async function lossesOfHooks(now, tell) {
  tell('Reading the whole store …');
  const { losses } = await source.answer(now.session, 'stats', {});
  if (losses === null) return { good: null, nodes: ['What hooks lost cannot be read.'] };
  if (losses.length === 0) return { good: true, nodes: ['No hook of this store failed or was passed over.'] };
  const rows = losses.map((/** @type {any} */ one) =>
    h('li', { text: shownText(`${one.handler}: ${one.kind} ${countText(one.count)}×, last ${String(one.last).slice(0, 19).replace('T', ' ')} UTC`) }));
  return { good: false, nodes: ['Records that hooks of this store did not see, or failed on:', h('ul', null, rows)] };
}

/**
 * What to keep outside the store, and the command that holds the store to it later.
 *
 * @param {Timeline} now
 * @returns {HTMLElement}
 */
export function receiptView(now) {
  const receipt = `${now.session}@${now.head}:${now.digest}`;
  return h('div', { class: 'receipt' },
    h('p', null, 'A receipt names this head of the log. Kept elsewhere, it shows later whether an end was cut off or written anew:'),
    commandLine(['eventctx', 'verify', now.session, '--receipt', receipt]));
}

/** @param {any} problem */
function problemText(problem) {
  if (typeof problem === 'string') return problem;
  return Object.values(problem).filter((value) => value !== null).join(' · ');
}

/**
 * Derives every request's view in the browser and compares its digest with the recorded one.
 *
 * @param {Timeline} timeline
 * @param {string[]} marks of all messages, in hex
 * @param {(done: number, of: number) => boolean} progress false: stop
 * @returns {Promise<{checked: number, differ: number[]}>} `differ`: indexes of requests
 */
export async function checkViews(timeline, marks, progress) {
  const known = new MessageMarks(marks);
  const { count } = timeline.requests;
  /** @type {number[]} */
  const differ = [];
  let since = performance.now();
  for (let request = 0; request < count; request++) {
    if (!(await viewHolds(timeline, request, known))) differ.push(request);
    if (performance.now() - since < CHECK_SLICE_MS) continue;
    if (!progress(request + 1, count)) return { checked: request + 1, differ };
    await new Promise((resolve) => setTimeout(resolve));
    since = performance.now();
  }
  progress(count, count);
  return { checked: count, differ };
}
