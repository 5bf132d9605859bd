// One message of any dialect as parts, in the order in which a model is shown them: Anthropic
// blocks, OpenAI chat, Responses items, Amplifier rows. The rules are those of
// eventctx/messages/parts.py; a test holds the two readings against each other. A host may put any
// JSON anywhere, so nothing here may raise: what is not understood is a part of kind `other`.

import {
  bareValue, BLOCK_READERS, callPart, INNER_READERS, isJsonObject, partOf, readBlocks, textOr, wholeBlock,
} from './message-blocks.js';
import { describeItem, isItem, itemHasFailed, itemType, sharedItemId } from './response-items.js';


/** @typedef {import('./message-blocks.js').MessagePart} MessagePart */

const RESULT_ROLES = ['tool', 'function'];
const TYPED_OUTPUTS = ['shell_call_output', 'computer_call_output', 'tool_search_output'];

/** Types of thinking that is encrypted: it counts, but nobody can read it. */
export const SEALED_TYPES = ['redacted_thinking', 'encrypted_content', 'compaction'];

/** @param {any} message @returns {MessagePart[]} */
export function readMessageParts(message) {
  if (!isJsonObject(message)) return message === undefined ? [] : [partOf('other', [], message)];
  if (typeof message.role === 'string') return readRow(message);
  if (isItem(message)) return readItem(message);
  return Object.keys(message).length ? [partOf('other', [], message)] : [];
}

/**
 * The parts of a result's content; blocks of types that no result has are `other`.
 * @param {MessagePart} part
 * @returns {MessagePart[]}
 */
export function partsOfResult(part) {
  const { value, place } = part;
  if (value === null || value === undefined) return [];
  if (TYPED_OUTPUTS.includes(part.type) && typeof value !== 'string') return readTypedOutput(part);
  if (!Array.isArray(value)) return [bareValue(value, place)];
  return readBlocks(value, place, INNER_READERS);
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

// -- rows ----------------------------------------------------------------------------------------

/** @param {Record<string, any>} message */
function readRow(message) {
  const { content, role } = message;
  /** @type {MessagePart[]} */
  let found = [];
  if (RESULT_ROLES.includes(role)) {
    const id = message.tool_call_id;
    const ids = typeof id === 'string' ? [id] : answeredWithoutId(message);
    found.push({ ...partOf('result', ['content'], content), ids, name: textOr(message.name) });
  } else if (Array.isArray(content)) {
    found = readBlocks(content, ['content'], BLOCK_READERS);
  } else if (content || typeof content === 'number' || isJsonObject(content) || content === false) {
    found.push(bareValue(content, ['content']));
  } else if ('tools' in message && message.type === 'additional_tools') {
    found.push(partOf('other', ['tools'], message.tools, 'additional_tools'));
  }
  readBeside(message, found);
  return found;
}

/**
 * The parts of a row besides its content: reasoning comes before it, all else after.
 * @param {Record<string, any>} message
 * @param {MessagePart[]} found
 */
function readBeside(message, found) {
  const reasoning = message.reasoning_content;
  if (reasoning && typeof reasoning === 'string') {
    found.unshift(partOf('thinking', ['reasoning_content'], reasoning));
  }
  if (message.refusal && typeof message.refusal === 'string') {
    found.push(partOf('refusal', ['refusal'], message.refusal, 'refusal'));
  }
  if (Array.isArray(message.tool_calls)) {
    // Amplifier's rows hold every call twice, and show it once.
    const known = new Set(found.filter((one) => one.kind === 'call').map((one) => one.ids[0]));
    message.tool_calls.forEach((call, index) => {
      if (!isJsonObject(call)) return;
      const part = readToolCall(call, index);
      if (!known.has(part.ids[0])) found.push(part);
    });
  }
  const legacy = message.function_call;
  if (isJsonObject(legacy)) {
    found.push(callPart(legacy, ['function_call', 'arguments'], '', null, legacy.name));
  }
  const sealed = message.thinking_block;
  const shown = found.some((one) => one.type === 'thinking' || one.type === 'redacted_thinking');
  if (isJsonObject(sealed) && !shown) {
    const reader = BLOCK_READERS.get(sealed.type) ?? wholeBlock('other');
    const part = reader(String(sealed.type), sealed, ['thinking_block']);
    if (part !== null) found.unshift(part);
  }
}

/**
 * A call of OpenAI chat (a function, or a custom tool) or of Amplifier.
 * @param {Record<string, any>} call
 * @param {number} index
 */
function readToolCall(call, index) {
  for (const [holder, key] of [['function', 'arguments'], ['custom', 'input']]) {
    const inner = call[holder];
    const place = ['tool_calls', index, holder, key];
    if (isJsonObject(inner)) return callPart(inner, place, '', call.id, inner.name);
  }
  const key = 'args' in call ? 'args' : 'arguments';
  const name = 'tool' in call ? call.tool : call.name;
  return callPart(call, ['tool_calls', index, key], '', call.id, name);
}

/** @param {Record<string, any>} message */
function answeredWithoutId(message) {
  const several = message.tool_call_ids;
  if (Array.isArray(several)) return several.filter((one) => typeof one === 'string');
  if (typeof message.name !== 'string') return [];
  if (Array.isArray(message.content)) {
    const inner = readBlocks(message.content, [], INNER_READERS);
    if (inner.some((one) => one.ids.length)) return [];
  }
  return [`function:${message.name}`];
}

// -- items ---------------------------------------------------------------------------------------

/** @param {Record<string, any>} message */
function readItem(message) {
  const type = itemType(message);
  const [sort, keys] = describeItem(message);
  const id = sharedItemId(message);
  const ids = id === null ? [] : [id];
  if (sort === 'call' && keys.length) {
    const key = keys.find((one) => one in message) ?? keys[0];
    return [callPart(message, [key], type, id, 'name' in message ? message.name : type)];
  }
  if (sort === 'call' || sort === 'hosted') {
    const name = textOr(message.name) || type;
    const own = typeof message.id === 'string' ? [message.id] : [];
    return [{ ...partOf(sort, [], message, type), ids: sort === 'call' ? ids : own, name }];
  }
  if (sort === 'result') {
    const value = keys.length ? message[keys[0]] : message;
    const failed = itemHasFailed(message);
    return [{ ...partOf('result', keys.slice(0, 1), value, type), ids, failed }];
  }
  return sort === 'thinking' ? readReasoning(type, message) : [partOf('other', [], message, type)];
}

/** @param {string} type @param {Record<string, any>} message */
function readReasoning(type, message) {
  /** @type {MessagePart[]} */
  const found = [];
  for (const key of ['summary', 'content']) {
    const texts = Array.isArray(message[key]) ? message[key] : [];
    texts.forEach((/** @type {any} */ block, /** @type {number} */ index) => {
      if (!isJsonObject(block) || typeof block.text !== 'string') return;
      found.push(partOf('thinking', [key, index, 'text'], block.text, 'reasoning'));
    });
  }
  const sealed = message.encrypted_content;
  if (typeof sealed === 'string') {
    const kind = type === 'compaction' ? 'compaction' : 'encrypted_content';
    found.push(partOf('thinking', ['encrypted_content'], sealed, kind));
  }
  return found;
}

/** @param {MessagePart} part */
function readTypedOutput(part) {
  const { value, place, type } = part;
  if (type === 'computer_call_output') return [partOf('image', place, value, 'computer_screenshot')];
  if (type !== 'shell_call_output' || !Array.isArray(value)) {
    return [partOf('other', place, value, type)];
  }
  /** @type {MessagePart[]} */
  const found = [];
  value.forEach((chunk, index) => {
    if (!isJsonObject(chunk)) found.push(bareValue(chunk, [...place, index]));
    else {
      for (const [key, one] of Object.entries(chunk)) {
        const words = (key === 'stdout' || key === 'stderr') && typeof one === 'string';
        if (words && one === '') continue;
        found.push(partOf(words ? 'text' : 'other', [...place, index, key], one));
      }
    }
  });
  return found;
}
