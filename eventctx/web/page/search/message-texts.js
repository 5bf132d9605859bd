/** All that can be read in a message, as plain texts in order: what a search and a diff look at. */

import { argumentsOf } from '../panes/message-line.js';
import { hostedArguments, partsOfResult, readMessageParts } from '../panes/message-parts.js';

/** @typedef {import('../panes/message-blocks.js').MessagePart} MessagePart */

/** @param {any} message null where it was erased @returns {string[]} */
export function textsOfMessage(message) {
  if (message === null || message === undefined) return [];
  return readMessageParts(message).flatMap(textsOfPart).filter((text) => text !== '');
}

/** @param {MessagePart} part @returns {string[]} */
function textsOfPart(part) {
  switch (part.kind) {
    case 'text':
    case 'refusal':
      return [String(part.value)];
    case 'thinking':
      return [String(part.value ?? '')];
    case 'call':
      return [`${part.name ?? ''} ${readableValue(argumentsOf(part.value))}`];
    case 'hosted':
      return [`${part.name ?? ''} ${readableValue(hostedArguments(part))}`];
    case 'result':
      return partsOfResult(part).flatMap(textsOfPart);
    case 'image':
    case 'document':
      return [`[${part.kind}]`];
    default:
      return [readableValue(part.value)];
  }
}

/**
 * A value with its line breaks as they are, one name a line, so that a diff finds the lines.
 *
 * @param {any} value
 * @returns {string}
 */
function readableValue(value) {
  if (typeof value === 'string') return value;
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    return JSON.stringify(value, null, 1) ?? '';
  }
  return Object.entries(value)
    .map(([name, item]) => `${name}: ${typeof item === 'string' ? item : JSON.stringify(item)}`)
    .join('\n');
}
