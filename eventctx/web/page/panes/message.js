// A message as a person reads it: its parts one below the other, each with what it is, never glued.

import { h } from '../core/element.js';
import { copyButton } from '../parts/copying.js';
import { dataText, jsonInText, jsonTree } from '../parts/json-tree.js';
import { countText } from '../parts/numbers.js';
import { renderedView } from '../parts/rendered.js';
import { firstLine, shownText, textView } from '../parts/text.js';
import { documentView, imageView } from './image.js';
import { partsOf } from '../source/message-parts.js';
import { argumentsOf, hostedArguments, messageLine, sealedText } from './message-line.js';

/** @typedef {import('../source/message-parts.js').MessagePart} MessagePart */
/** @typedef {import('../parts/rendered.js').TreeNode} TreeNode */

/**
 * `injected` are texts that the client put into the message; `trees` those of its texts that have
 * markup, by text; with `raw` all is shown as it was written.
 * @typedef {{injected: readonly InjectedText[], trees: ReadonlyMap<string, readonly TreeNode[]>, raw: boolean}} Reading
 */

// Thinking is looked over, not read: less of it is shown unfolded.
const SIDE_FOLD = { characters: 1500, lines: 16 };
const DATA_FOLD = { characters: 2400, lines: 30 };

/**
 * @param {any} message a message of any dialect; null where its contents were erased
 * @param {{detail?: 0|1|2} & Partial<Reading>} [options] `detail` 0 shows nothing, 1 a line, 2 all
 * @returns {HTMLElement}
 */
export function messageView(message, { detail = 2, injected = [], trees = new Map(), raw = false } = {}) {
  if (detail === 0) return h('div', { class: 'message', hidden: true });
  if (message === null) {
    return h('p', { class: 'message erased', text: 'Erased: the contents were destroyed for ever.' });
  }
  if (detail === 1) return h('p', { class: 'message line', dir: 'auto', text: firstLine(messageLine(message)) });
  const parts = partsOf(message);
  if (parts.length === 0) return h('p', { class: 'message nothing', text: '(no content)' });
  const view = h('div', { class: 'message' }, parts.map((part) => partView(part, { injected, trees, raw })));
  view.append(copyButton(() => parts.map(writtenText).join('\n\n'), 'this message', view));
  return view;
}

/** JSON as text, indented, folded where it is long. @param {any} value @returns {HTMLElement} */
export function jsonView(value) {
  return dataText(jsonText(value), DATA_FOLD);
}

/** @param {any} value */
function jsonText(value) {
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2) ?? 'null';
}

/** What a copy of a part holds: its text, or its JSON. @param {MessagePart} part @returns {string} */
function writtenText(part) {
  if (part.kind === 'image') return '[image]';
  if (part.kind === 'result') return part.inner.map(writtenText).join('\n');
  return jsonText(part.kind === 'call' ? argumentsOf(part.value) : part.value);
}

/** @param {MessagePart} part @param {Reading} reading @returns {HTMLElement} */
function partView(part, reading) {
  switch (part.kind) {
    case 'text':
      return injectedText(part, reading.injected) ?? wordsView(part.value, reading, { class: 'part words' });
    case 'refusal':
      return labelled('refusal', 'refusal', null, wordsView(part.value, reading));
    case 'thinking':
      return thinkingView(part, reading);
    case 'call':
      return callView(part, part.value, reading);
    case 'hosted':
      if (part.type.endsWith('_tool_result')) return resultView(part, [valueView(hostedContent(part), reading)]);
      return callView(part, hostedArguments(part), reading, 'answered by the provider');
    case 'result':
      return resultView(part, part.inner.map((one) => resultPart(one, reading)));
    case 'image':
      return imageView(part.value);
    case 'document':
      return labelled('document', part.type, null, documentView(part.value) ?? valueView(part.value, reading));
    default:
      return labelled('other', part.type || 'unknown content', null, valueView(part.value, reading));
  }
}

/**
 * Words of a person or a model.
 * @param {string} text
 * @param {Reading} reading
 * @param {{class?: string, characters?: number, lines?: number}} [options]
 */
function wordsView(text, { trees, raw }, options = {}) {
  const tree = raw ? undefined : trees.get(text);
  return tree === undefined ? textView(text, options) : renderedView(tree, options);
}

/** A value that a program wrote or reads. @param {any} value @param {Reading} reading */
function valueView(value, { raw }) {
  return raw ? jsonView(value) : jsonTree(value);
}

/** @param {MessagePart} part @param {Reading} reading */
function resultPart(part, reading) {
  if (part.kind !== 'text') return partView(part, reading);
  const value = reading.raw ? undefined : jsonInText(part.value);
  return value === undefined ? dataText(part.value) : jsonTree(value);
}

/** @param {MessagePart} part @param {Reading} reading */
function thinkingView(part, reading) {
  const sealed = sealedText(part);
  if (sealed !== null) return labelled('thinking', 'thinking', sealed);
  if (part.value === '') return labelled('thinking', 'thinking', 'signed, without a text');
  return labelled('thinking', 'thinking', null, wordsView(part.value, reading, SIDE_FOLD));
}

/** @param {MessagePart} part @param {any} value @param {Reading} reading @param {string|null} [note] */
function callView(part, value, reading, note = null) {
  const given = argumentsOf(value);
  const isNothing = given === null || given === undefined || given === ''
    || (typeof given === 'object' && Object.keys(given).length === 0);
  return labelled('call', part.name ?? 'a call without a name', note, isNothing ? null : valueView(given, reading), part.ids);
}

/** @param {MessagePart} part @param {HTMLElement[]} inner */
function resultView(part, inner) {
  const name = part.name === null ? 'result' : `result of ${part.name}`;
  const note = inner.length === 0 ? 'empty' : part.failed ? 'failed' : null;
  return labelled(part.failed ? 'result failed' : 'result', name, note, inner, part.ids);
}

/** @param {MessagePart} part */
function hostedContent(part) {
  return part.value.content ?? part.value.output ?? part.value;
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

/**
 * A run of characters (code points, the end exclusive) of the text at `place`.
 * @typedef {{place: (string|number)[], start: number, end: number}} InjectedText
 */

/**
 * The text of a part with the injected runs folded; null if there are none in it.
 * @param {MessagePart} part
 * @param {readonly InjectedText[]} injected
 * @returns {HTMLElement|null}
 */
function injectedText(part, injected) {
  const place = JSON.stringify(part.place);
  const here = injected.filter((one) => JSON.stringify(one.place) === place);
  if (here.length === 0) return null;
  const view = h('div', { class: 'part words' });
  for (const { text, isInjected } of injectedPieces(part.value, here)) {
    if (!isInjected) {
      if (text.trim() !== '') view.append(textView(text));
      continue;
    }
    view.append(h('details', { class: 'injected' },
      h('summary', null,
        h('span', { class: 'part-title', text: 'put in by the program' }),
        h('span', { class: 'part-note', text: `${countText(text.length)} characters` }),
        h('span', { class: 'begins', text: firstLine(text, 80) }),
      ),
      textView(text),
    ));
  }
  return view;
}

/**
 * A text cut at the borders of the runs.
 * @param {string} text
 * @param {readonly InjectedText[]} runs
 * @returns {{text: string, isInjected: boolean}[]}
 */
export function injectedPieces(text, runs) {
  // The log counts code points, a string of this language UTF-16 units.
  const characters = /[\ud800-\udbff]/.test(text) ? Array.from(text) : null;
  const length = characters === null ? text.length : characters.length;
  /** @type {(from: number, to: number) => string} */
  const cut = (from, to) =>
    characters === null ? text.slice(from, to) : characters.slice(from, to).join('');
  const pieces = [];
  let at = 0;
  for (const run of [...runs].sort((a, b) => a.start - b.start)) {
    const start = Math.max(at, Math.min(run.start, length));
    const end = Math.max(start, Math.min(run.end, length));
    if (start > at) pieces.push({ text: cut(at, start), isInjected: false });
    if (end > start) pieces.push({ text: cut(start, end), isInjected: true });
    at = end;
  }
  if (at < length) pieces.push({ text: cut(at, length), isInjected: false });
  return pieces;
}
