/**
 * What messages are made of, in the order in which a model is shown it. `eventctx/messages/parts.py`
 * reads it, whatever the dialect: the server sends it with each message, and a file holds it.
 */

/**
 * @typedef {'text'|'thinking'|'refusal'|'image'|'document'|'call'|'result'|'hosted'|'other'} PartKind
 * @typedef {object} MessagePart
 * @property {PartKind} kind
 * @property {(string|number)[]} place keys that lead from the message to the value
 * @property {any} value
 * @property {string} type the block's own type, '' where it has none
 * @property {string[]} ids of the call, or of the calls that a result answers
 * @property {string|null} name the tool's
 * @property {boolean} failed whether a result is an error
 * @property {MessagePart[]} inner what a result holds
 */

/** A part as it is sent, without what is empty at its end.
 * @typedef {[kind: PartKind, place?: (string|number)[], type?: string, ids?: string[], name?: string|null, failed?: boolean, inner?: any[]]} SentPart
 */

/** @type {WeakMap<object, MessagePart[]>} */
const knownParts = new WeakMap();

/** @param {any} message undefined: there is none @returns {readonly MessagePart[]} */
export function partsOf(message) {
  if (message === undefined) return [];
  return knownParts.get(message) ?? [partAt(message, ['other'])];
}

/** Takes the parts of a message, and gives it back. @param {any} message @param {readonly SentPart[]} sent */
export function withParts(message, sent) {
  if (message !== null && typeof message === 'object') knownParts.set(message, sent.map((one) => partAt(message, one)));
  return message;
}

/** Where an answer has messages; elsewhere a key of that name is somebody's data. */
const HOLDERS = ['as_sent', 'messages', 'sent', 'additions', 'differences', 'insertions'];

/** Takes the parts of all messages in an answer, and gives it back. @param {any} answer */
export function takeParts(answer) {
  if (answer === null || typeof answer !== 'object') return answer;
  if ('parts' in answer && 'message' in answer) withParts(answer.message, answer.parts);
  else if (Array.isArray(answer)) answer.forEach(takeParts);
  else for (const key of HOLDERS) takeParts(answer[key]);
  return answer;
}

/** @param {any} message @param {SentPart} sent @returns {MessagePart} */
function partAt(message, [kind, place = [], type = '', ids = [], name = null, failed = false, inner = []]) {
  // A signed block without a text is a part, too.
  const value = place.reduce((found, key) => found?.[key], message) ?? (kind === 'thinking' ? '' : null);
  return { kind, place, value, type, ids, name, failed, inner: inner.map((one) => partAt(message, one)) };
}
