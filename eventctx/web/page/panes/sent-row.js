// One row of what was sent: an entry of the view, a part next to it, or what was added on the way.

import { h } from '../core/element.js';
import { counted, tokensText } from '../parts/numbers.js';
import { kindWord } from '../parts/standing.js';
import { shownText, textView } from '../parts/text.js';
import { place } from '../core/place.js';
import { withParts } from '../source/message-parts.js';
import { showBody } from './bodies.js';
import { placeOfText } from '../timeline/entries.js';
import { estimatedHeight, foldButton, levelOfRow, raw, toggleRow } from './detail-levels.js';
import { messageLink, runsOfNumbers, runsText, screenGroup, sizeChange } from './message-head.js';
import { jsonTree } from '../parts/json-tree.js';
import { messageView } from './message.js';
import { selectByClick, rowText, unfoldsAt } from './transcript.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('./sent-rows.js').SentRow} SentRow */
/** @typedef {Extract<SentRow, {type: 'entry' | 'sent'}>} OpenableRow */

/** @type {Readonly<Record<string, string>>} */
const INSERTION_WORDS = {
  summary: 'summary', system_prompt: 'system prompt', notice: 'notice', memory: 'memory', index: 'index',
};

/** All that the look of a row depends on. @param {Timeline} now @param {number} request @param {SentRow} row */
export function keyOfSentRow(now, request, row) {
  switch (row.type) {
    case 'entry':
      return `${row.id} ${levelOf(now, row)} ${raw.peek()} ${row.isNew} ${row.place}`;
    case 'sent':
      return `sent ${now.requests.position[request]} ${row.place} ${levelOf(now, row)} ${raw.peek()}`;
    case 'beside':
      return `${row.what} ${now.requests.position[request]} ${row.value === undefined || row.value === null}`;
    default:
      return `${row.type} ${now.requests.position[request]}`;
  }
}

/** @param {Timeline} now @param {SentRow} row */
export function heightOfSentRow(now, row) {
  if (row.type === 'entry') return estimatedHeight(levelOf(now, row), charactersOf(now, row.id));
  return row.type === 'sent' ? estimatedHeight(levelOf(now, row), 400) : estimatedHeight(1, 0);
}

/** @param {Timeline} now @param {SentRow} row @returns {HTMLElement} */
export function sentRowView(now, row) {
  switch (row.type) {
    case 'entry':
      return entryRow(now, row);
    case 'sent':
      return asSentRow(now, row);
    case 'beside':
      return besideRow(row);
    case 'added':
      return h('article', { class: 'row g-system is-added', 'aria-label': 'Added on the way' },
        h('div', { class: 'row-head' },
          h('span', { class: 'row-kind', text: 'added on the way' }),
          h('span', { class: 'muted', text: 'not sent by the context: the host put it in' })),
        h('div', { class: 'row-text' }, messageView(row.message, { raw: raw.peek() })));
    default:
      return h('p', { class: 'row sent-note', text: unsentText(row) });
  }
}

/** @param {Extract<SentRow, {type: 'unsent'}>} row */
function unsentText({ missing, additions, untold }) {
  const parts = [];
  if (untold === 0) parts.push('What the host added on the way is not known.');
  if (untold !== null && untold > 0) parts.push(`The host added at least ${counted(untold, 'message')} on the way; the texts are not known.`);
  if (additions > 0) parts.push(`The host added ${counted(additions, 'message')} on the way.`);
  if (missing > 0) parts.push(`${counted(missing, 'message')} of these the host did not send.`);
  return parts.join(' ');
}

/** @param {Timeline} now @param {Extract<SentRow, {type: 'entry'}>} row */
function entryRow(now, row) {
  const { id, place: at, isNew } = row;
  const entry = now.entry(id);
  const { number } = entry;
  const group = screenGroup(entry.group);
  const level = levelOf(now, row);
  const shows = number !== null && entry.kind !== 'synthetic' ? number : null;
  const article = h('article', {
    class: `row g-${group} is-${entry.kind}${isNew ? ' is-new' : ''}`,
    'data-number': shows, 'data-entry': id,
    'aria-current': shows !== null && place.peek().message === shows ? 'true' : null,
    'aria-label': `Entry ${at}${isNew ? ', new since the request before' : ''}`,
    on: { click: (/** @type {MouseEvent} */ event) => clickRow(event, now, row, shows) },
  }, h('div', { class: 'row-head' },
    foldButton(sentRowName(row), groupOfRow(now, row), `Entry ${at}`),
    h('span', { class: 'row-place', text: String(at) }),
    shows === null ? null : messageLink(shows),
    h('span', { class: 'row-kind', text: entryWord(now, entry) }),
    isNew ? h('span', { class: 'new-mark', text: 'new' }) : null,
    entryNotes(now, entry),
    h('span', { class: 'row-tokens', text: tokensText(entry.tokens, true), title: 'tokens, estimated' }),
  ));
  if (level === 0) return article;
  const address = placeOfText(entry);
  article.append(address === null
    ? h('div', { class: 'row-text' }, h('p', { class: 'part-note', text: madeUpText(entry) }))
    : rowText(now.session, address, level, charactersOf(now, id)));
  return article;
}

/** @param {MouseEvent} event @param {Timeline} now @param {OpenableRow} row @param {number|null} number */
function clickRow(event, now, row, number) {
  if (selectByClick(event, number) && unfoldsAt(event, levelOf(now, row))) openSentRow(now, row);
}

/** Unfolds a row, or folds it. @param {Timeline} now @param {SentRow|undefined} row */
export function openSentRow(now, row) {
  if (row?.type === 'entry' || row?.type === 'sent') toggleRow(sentRowName(row), groupOfRow(now, row));
}

/** @param {Timeline} now @param {ReturnType<Timeline['entry']>} entry */
function entryWord(now, entry) {
  if (entry.kind === 'insertion') return INSERTION_WORDS[entry.extra?.name ?? ''] ?? entry.extra?.name ?? 'insertion';
  if (entry.kind === 'synthetic') return 'made-up result';
  if (entry.kind === 'opening') return 'made-up opening';
  return kindWord(now.messages.kind[entry.number ?? 0]);
}

/** @param {Timeline} now @param {ReturnType<Timeline['entry']>} entry */
function entryNotes(now, entry) {
  const { kind, number, extra } = entry;
  const said = (/** @type {string} */ text) => h('span', { class: 'row-note', text });
  if (kind === 'shortened' && number !== null) return said(`shortened ${sizeChange(now, number, entry.tokens)}`);
  if (kind === 'stripped') return said('its thinking is left out');
  if (kind === 'partial') return said(`without ${counted(extra?.omit?.length ?? 0, 'result')} whose call is gone`);
  if (kind === 'insertion') {
    const stands = standsForText(extra?.stands_for);
    return said(stands === null ? 'not in the transcript' : `instead of ${stands}`);
  }
  if (kind === 'synthetic') return [said('for the call in'), number === null ? null : messageLink(number)];
  return null;
}

/** @param {[number, number][]|undefined} runs */
function standsForText(runs) {
  return runs === undefined || runs.length === 0 ? null : runsText(runs);
}

/** @param {ReturnType<Timeline['entry']>} entry */
function madeUpText(entry) {
  if (entry.kind === 'synthetic') return 'The call never got a result, so the view makes one up.';
  return 'The view would begin without a user, so a message is made up.';
}

/** @param {Timeline} now @param {Extract<SentRow, {type: 'sent'}>} row */
function asSentRow(now, row) {
  const { numbers, place: at } = row;
  const first = numbers[0] ?? null;
  const group = groupOfRow(now, row);
  const level = levelOf(now, row);
  const text = h('div', { class: 'row-text' });
  showAsSent(text, now, row, level);
  const runs = runsOfNumbers([...numbers].sort((a, b) => a - b));
  return h('article', {
    class: `row g-${group}`, 'data-number': first, 'aria-label': `Message ${at} as it was sent`,
    'aria-current': first !== null && place.peek().message === first ? 'true' : null,
    on: { click: (/** @type {MouseEvent} */ event) => clickRow(event, now, row, first) },
  }, h('div', { class: 'row-head' },
    foldButton(sentRowName(row), group, `Message ${at} as it was sent`),
    h('span', { class: 'row-place', text: String(at) }),
    runs.length === 1 && runs[0][0] === runs[0][1] ? messageLink(runs[0][0]) : null,
    h('span', { class: 'row-kind', text: first === null ? 'program' : kindWord(now.messages.kind[first]) }),
    carriedNote(numbers, runs),
  ), level === 0 ? null : text);
}

/**
 * The message as it was sent; the markup of its texts is that of the messages that it carries.
 * @param {HTMLElement} text
 * @param {Timeline} now
 * @param {Extract<SentRow, {type: 'sent'}>} row
 * @param {0|1|2} level
 */
function showAsSent(text, now, { message, numbers, injected }, level) {
  const trees = new Map();
  const draw = () => text.replaceChildren(messageView(message, { detail: level, injected, trees, raw: raw.peek() }));
  draw();
  if (level < 2 || raw.peek()) return;
  for (const number of numbers) {
    const address = { position: now.messages.position[number], index: now.messages.index[number] };
    showBody(now.session, address, text, (_, found) => {
      found.forEach((tree, words) => trees.set(words, tree));
      if (found.size > 0) draw();
    }, true);
  }
}

/** @param {readonly number[]} numbers @param {[number, number][]} runs */
function carriedNote(numbers, runs) {
  if (numbers.length === 1) return null;
  const text = numbers.length === 0 ? 'added by the program, not in the transcript' : `carries ${runsText(runs)}`;
  return h('span', { class: 'row-note', text });
}

/** @param {Extract<SentRow, {type: 'beside'}>} row */
function besideRow({ what, tokens, value }) {
  const title = { system: 'System prompt', tools: 'Tool definitions', both: 'System prompt and tools' }[what];
  const size = tokens > 0 ? `${tokensText(tokens, true)} tokens` : 'size not known';
  if (value === undefined || value === null) {
    const missing = what === 'both' ? 'beside the messages; their text is not in the log' : 'its text is not at hand';
    return h('p', { class: 'row beside g-system' },
      h('span', { class: 'row-kind', text: title }), h('span', { class: 'row-note', text: `${size}, ${missing}` }));
  }
  const tools = what === 'tools' && Array.isArray(value) ? value : null;
  const count = tools === null ? '' : `${tools.length}, `;
  return h('details', { class: 'row beside g-system' },
    h('summary', null,
      h('span', { class: 'row-kind', text: title }), h('span', { class: 'row-note', text: `${count}${size}` })),
    tools === null
      ? systemText(value)
      : tools.map((tool) => h('details', { class: 'tool' },
        h('summary', { class: 'mono', text: shownText(toolName(tool)) }), jsonTree(tool))));
}

/** @param {any} value */
function systemText(value) {
  if (typeof value === 'string') return textView(value);
  const blocks = Array.isArray(value) ? value : [];
  return messageView(withParts({ content: value }, blocks.map((block, at) =>
    typeof block?.text === 'string' ? ['text', ['content', at, 'text']] : ['other', ['content', at]])));
}

/** @param {any} tool */
function toolName(tool) {
  return String(tool?.function?.name ?? tool?.name ?? tool?.type ?? '?');
}

/** @param {OpenableRow} row @returns {string} */
function sentRowName(row) {
  return row.type === 'entry' ? `s${row.id}` : `m${row.numbers[0] ?? `at${row.place}`}`;
}

/** @param {Timeline} now @param {OpenableRow} row */
function groupOfRow(now, row) {
  if (row.type === 'entry') return screenGroup(now.entry(row.id).group);
  return row.numbers.length === 0 ? 'system' : screenGroup(now.messages.kind[row.numbers[0]]);
}

/** @param {Timeline} now @param {OpenableRow} row */
function levelOf(now, row) {
  return levelOfRow(sentRowName(row), groupOfRow(now, row));
}

/** @param {Timeline} now @param {number} id */
function charactersOf(now, id) {
  if (id >= 0) return now.messages.characters[id];
  // An extra has no characters of its own in the columns; four of them make a token, about.
  return now.entry(id).tokens * 4;
}
