// A message on one line: what a person recognises it by.

import { partsOf } from '../source/message-parts.js';

/** @typedef {import('../source/message-parts.js').MessagePart} MessagePart */

/** Types of thinking that is encrypted: it counts, but nobody can read it. */
const SEALED_TYPES = ['redacted_thinking', 'encrypted_content', 'compaction'];

// A line is never wider than this on any screen; of a text of megabytes no more is looked at.
const LINE_LENGTH = 240;

/** @param {any} message null where it was erased @returns {string} */
export function messageLine(message) {
  if (message === null) return '[erased]';
  const texts = [];
  for (const part of partsOf(message)) {
    const text = partLine(part, texts.length === 0);
    if (text !== '') texts.push(text);
  }
  return oneLineOf(texts.join('  '));
}

/**
 * A call's arguments as `name=value` pairs; a text that holds JSON is read first.
 * @param {any} value
 * @returns {string}
 */
export function argumentsLine(value) {
  const given = argumentsOf(value);
  if (given === null || given === undefined) return '';
  if (typeof given === 'string') return given;
  if (typeof given !== 'object' || Array.isArray(given)) return JSON.stringify(given);
  return Object.entries(given)
    .map(([name, item]) => `${name}=${typeof item === 'string' ? item : JSON.stringify(item)}`)
    .join(', ');
}

/** The arguments of a call, read where they are JSON in a text. @param {any} value @returns {any} */
export function argumentsOf(value) {
  if (typeof value !== 'string') return value;
  try {
    return JSON.parse(value);
  } catch {
    return value; // cut short, or a text by itself
  }
}

/** The text of a sealed part, or null if the part can be read. @param {MessagePart} part */
export function sealedText(part) {
  if (part.kind !== 'thinking' || !SEALED_TYPES.includes(part.type)) return null;
  const word = part.type === 'redacted_thinking' ? 'redacted' : 'encrypted';
  return `[${word}, ${part.value.length.toLocaleString('en')} characters]`;
}

/**
 * @param {MessagePart} part
 * @param {boolean} leads whether no other text of the message comes before it
 * @returns {string}
 */
function partLine(part, leads) {
  switch (part.kind) {
    case 'text':
    case 'refusal':
      return part.value.slice(0, 4 * LINE_LENGTH).trim();
    case 'thinking':
      return leads ? `(thinking) ${sealedText(part) ?? part.value.slice(0, 4 * LINE_LENGTH)}`.trim() : '';
    case 'call':
      return `→ ${part.name ?? '?'}(${argumentsLine(part.value)})`;
    case 'result':
      return `← ${part.failed ? '✗ ' : ''}${resultLine(part)}`;
    case 'hosted':
      if (part.type.endsWith('_tool_result')) return '← (answered by the provider)';
      return `→ ${part.name ?? '?'}(${argumentsLine(hostedArguments(part))})`;
    case 'image':
      return '[image]';
    case 'document':
      return '[document]';
    default:
      return typeof part.value === 'string' ? part.value : JSON.stringify(part.value) ?? '';
  }
}

/** @param {MessagePart} part */
function resultLine(part) {
  let line = '';
  for (const inner of part.inner) {
    line += `${line === '' ? '' : ' '}${partLine(inner, true)}`;
    if (line.length > 4 * LINE_LENGTH) break;
  }
  return line;
}

/** @param {string} text */
function oneLineOf(text) {
  const line = text.slice(0, 8 * LINE_LENGTH).replace(/\s+/g, ' ').trim();
  return line.length > LINE_LENGTH ? `${line.slice(0, LINE_LENGTH - 1)}…` : line;
}

/**
 * The arguments of a hosted call; all of its values where it holds more, such as a result.
 * @param {MessagePart} part
 */
export function hostedArguments(part) {
  const block = part.value;
  const given = ['arguments', 'input', 'action'].filter((key) => key in block);
  if (given.length === 1 && !('output' in block)) return block[given[0]];
  const rest = Object.entries(block).filter(([key]) => !['type', 'id', 'name'].includes(key));
  return Object.fromEntries(rest);
}
