/** What the charts show of a request and of a cell, as words. No DOM. */

import { countText, percentText, tokensText } from '../parts/numbers.js';
import { kindWord, KNOWN_WORDS, standingWord } from '../parts/standing.js';
import { shownText } from '../parts/text.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/** From the bottom of a stack to its top: what is with the messages, then the five groups. */
export const BAND_NAMES = Object.freeze(['beside messages', 'system', 'person', 'model', 'results', 'summaries']);

/**
 * The size of a request: `45,210 tokens, counted by the provider`.
 * @param {Timeline} timeline
 * @param {number} request
 */
function sizeWords({ requests }, request) {
  const estimated = requests.estimated[request] === 1;
  const how = estimated ? 'estimated' : 'counted by the provider';
  return `${tokensText(requests.total[request] ?? 0, estimated)} tokens, ${how}`;
}

/**
 * A request in one line: name, size, share read from cache, how it is known.
 * @param {Timeline} timeline
 * @param {number} request
 */
export function requestWords(timeline, request) {
  const { requests } = timeline;
  if (request < 0 || request >= requests.count) return 'No request yet';
  const share = cachedShare(requests, request);
  const budget = requests.budget[request] ?? -1;
  const said = [
    sizeWords(timeline, request),
    share === null ? null : `${percentText(share)} read from cache`,
    budget < 0 ? null : `budget ${countText(budget)}`,
    KNOWN_WORDS[requests.known[request] ?? -1] ?? 'not known how',
    lossWords(timeline, request),
  ];
  return `${timeline.name(request)}: ${said.filter((one) => one !== null).join(' · ')}`;
}

/** @param {Timeline} timeline @param {number} request */
function lossWords(timeline, request) {
  const loss = timeline.lossAt(request);
  if (loss === null || loss.kind !== 'prompt') return null;
  return `~${countText(loss.tokens)} tokens lost without a record (inferred)`;
}

/**
 * All of a request for somebody who hears the chart: its line, and the tokens of each band.
 * @param {Timeline} timeline
 * @param {number} request
 * @param {ArrayLike<number>} bands tokens in the order of `BAND_NAMES`
 */
export function spokenRequest(timeline, request, bands) {
  const parts = BAND_NAMES.flatMap((name, band) => {
    const tokens = bands[band] ?? 0;
    return tokens > 0 ? [`${name} ${countText(tokens)}`] : [];
  });
  const line = requestWords(timeline, request);
  return parts.length === 0 ? line : `${line} · ${parts.join(', ')}`;
}

/**
 * From 0 to 1; null where the provider did not say.
 * @param {{cached: ArrayLike<number>, total: ArrayLike<number>}} requests
 * @param {number} request
 */
export function cachedShare({ cached, total }, request) {
  const [read = -1, whole = 0] = [cached[request], total[request]];
  return read < 0 || whole <= 0 ? null : Math.min(1, read / whole);
}

/**
 * A cell of the presence map: `#40, person, dropped at 2.3 by compaction 2 (old_round)`.
 * @param {Timeline} timeline
 * @param {number} message
 * @param {number} request
 */
export function cellWords(timeline, message, request) {
  const { messages, changes, compactions, reasons } = timeline;
  const { what, change } = timeline.standing(message, request);
  const said = `#${message}, ${kindWord(messages.kind[message] ?? -1)}, ${standingWord(what)} at ${timeline.name(request)}`;
  if (change < 0) return said;
  const number = compactions[changes.compaction[change] ?? -1]?.number ?? 0;
  const reason = reasons[changes.reason[change] ?? -1]?.code;
  const by = number > 0 ? ` by compaction ${number}` : '';
  return `${said}${by}${reason === undefined ? '' : ` (${shownText(reason)})`}`;
}
