// A message as a person reads it: its parts one below the other, each with what it is, never glued.

import { h } from '../core/element.js';
import { countText } from '../parts/numbers.js';
import { firstLine, shownText, textView } from '../parts/text.js';
import { imageView } from './image.js';
import { injectedText } from './injected.js';
import { argumentsOf, messageLine, sealedText } from './message-line.js';
import { hostedArguments, partsOfResult, readMessageParts } from './message-parts.js';

/** @typedef {import('./message-blocks.js').MessagePart} MessagePart */
/** @typedef {import('./injected.js').InjectedText} InjectedText */

// Thinking and arguments are looked over, not read: less of them is shown unfolded.
const SIDE_FOLD = { characters: 1500, lines: 16 };
const DATA_FOLD = { characters: 2400, lines: 30 };

/**
 * @param {any} message a message of any dialect; null where its contents were erased
 * @param {{detail?: 0|1|2, injected?: readonly InjectedText[]}} [options] `detail` 0 shows nothing,
 *   1 a line, 2 all; `injected` are texts that the client put into the message
 * @returns {HTMLElement}
 */
export function messageView(message, { detail = 2, injected = [] } = {}) {
  if (detail === 0) return h('div', { class: 'message', hidden: true });
  if (message === null) {
    return h('p', { class: 'message erased', text: 'Erased: the contents were destroyed for ever.' });
  }
  if (detail === 1) return h('p', { class: 'message line', text: firstLine(messageLine(message)) });
  const parts = readMessageParts(message);
  if (parts.length === 0) return h('p', { class: 'message nothing', text: '(no content)' });
  return h('div', { class: 'message' }, parts.map((part) => partView(part, injected)));
}

/**
 * JSON as text, indented, folded where it is long.
 * @param {any} value
 * @returns {HTMLElement}
 */
export function jsonView(value) {
  return textView(typeof value === 'string' ? value : JSON.stringify(value, null, 2) ?? 'null', {
    ...DATA_FOLD, class: 'data',
  });
}

/**
 * @param {MessagePart} part
 * @param {readonly InjectedText[]} injected
 * @returns {HTMLElement}
 */
function partView(part, injected) {
  switch (part.kind) {
    case 'text':
      return injectedText(part, injected) ?? textView(part.value, { class: 'part words' });
    case 'refusal':
      return labelled('refusal', 'refusal', null, textView(part.value));
    case 'thinking':
      return thinkingView(part);
    case 'call':
      return callView(part, part.value);
    case 'hosted':
      if (part.type.endsWith('_tool_result')) return resultView(part, [hostedContent(part)]);
      return callView(part, hostedArguments(part), 'answered by the provider');
    case 'result':
      return resultView(part, partsOfResult(part).map((one) => partView(one, injected)));
    case 'image':
      return imageView(part.value);
    case 'document':
      return labelled('document', part.type, null, jsonView(part.value));
    default:
      return labelled('other', part.type || 'unknown content', null, jsonView(part.value));
  }
}

/** @param {MessagePart} part */
function thinkingView(part) {
  const sealed = sealedText(part);
  if (sealed !== null) return labelled('thinking', 'thinking', sealed);
  if (part.value === '') return labelled('thinking', 'thinking', 'signed, without a text');
  return labelled('thinking', 'thinking', null, textView(part.value, SIDE_FOLD));
}

/**
 * @param {MessagePart} part
 * @param {any} value
 * @param {string|null} [note]
 */
function callView(part, value, note = null) {
  const given = argumentsOf(value);
  const plain = given !== null && typeof given === 'object' && !Array.isArray(given);
  const shown = plain
    ? argumentList(given)
    : given === null || given === undefined ? null : jsonView(given);
  return labelled('call', part.name ?? 'a call without a name', note, shown, part.ids);
}

/** @param {Record<string, any>} given */
function argumentList(given) {
  const rows = Object.entries(given).flatMap(([name, value]) => [
    h('dt', { text: shownText(name) }),
    h('dd', null, textView(argumentText(value), { ...SIDE_FOLD, class: 'data' })),
  ]);
  return rows.length === 0 ? null : h('dl', { class: 'arguments' }, rows);
}

/** @param {any} value */
function argumentText(value) {
  return typeof value === 'string' ? value : JSON.stringify(value, null, 1) ?? 'null';
}

/**
 * @param {MessagePart} part
 * @param {HTMLElement[]} inner
 */
function resultView(part, inner) {
  const name = part.name === null ? 'result' : `result of ${part.name}`;
  const note = inner.length === 0 ? 'empty' : part.failed ? 'failed' : null;
  const view = labelled(part.failed ? 'result failed' : 'result', name, note, inner, part.ids);
  return view;
}

/** @param {MessagePart} part */
function hostedContent(part) {
  return jsonView(part.value.content ?? part.value.output ?? part.value);
}

/**
 * @param {string} kind
 * @param {string} title
 * @param {string|null} note
 * @param {HTMLElement|HTMLElement[]|null} [content]
 * @param {readonly string[]} [ids]
 */
function labelled(kind, title, note, content = null, ids = []) {
  const named = ids.filter((id) => !id.startsWith('function:'));
  return h('div', { class: `part ${kind}` },
    h('p', { class: 'part-head' },
      h('span', { class: 'part-title', text: shownText(title) }),
      note === null ? null : h('span', { class: 'part-note', text: note }),
      named.length === 0 ? null : h('span', { class: 'part-id', text: idsText(named) }),
    ),
    content,
  );
}

/** @param {string[]} ids */
function idsText(ids) {
  const more = ids.length > 2 ? ` and ${countText(ids.length - 2)} more` : '';
  return shownText(ids.slice(0, 2).join(', ') + more);
}
