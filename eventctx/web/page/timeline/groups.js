/**
 * The five groups in which a screen shows tokens, and the groups of the log that each holds.
 *
 * The log tells eight groups apart (`GROUPS` of the command line's diff). A person reads five: what
 * a harness writes counts with the system prompt, and what stands in for others is a summary.
 */

export const SCREEN_GROUPS = Object.freeze(['system', 'person', 'model', 'result', 'summary']);

/** @type {Readonly<Record<string, number>>} */
const SCREEN_GROUP_OF = Object.freeze({
  system: 0,
  human: 1,
  user: 0,
  assistant: 2,
  result: 3,
  other: 0,
  inserted: 4,
  made_up: 4,
});

/** The log's groups in the order of their codes; the first six are also the kinds of message. */
export const LOG_GROUPS = Object.freeze([
  'system',
  'human',
  'user',
  'assistant',
  'result',
  'other',
  'inserted',
  'made_up',
]);

export const HUMAN_KIND = LOG_GROUPS.indexOf('human');

const CODES = LOG_GROUPS.map((name) => SCREEN_GROUP_OF[name]);

/** The screen's group of a code of the log: an index in `SCREEN_GROUPS`. @param {number} code @returns {number} */
export function groupOf(code) {
  return CODES[code] ?? 0;
}
