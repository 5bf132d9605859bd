/**
 * The source of an exported file: everything is in the page itself, and nothing is asked of anybody.
 *
 * Contents stand in compressed blocks, which are decoded when one of their messages is first seen.
 * A content that the file leaves out is shown as a message that says so, with its size.
 */

import { go, place } from '../core/place.js';
import { RecentValues } from '../core/keyed.js';
import { LOG_GROUPS } from '../timeline/groups.js';
import { Timeline } from '../timeline/timeline.js';
import { partsOf, withParts } from './message-parts.js';
import { foundIn, wordsOfQuery } from './searching.js';

/** @typedef {import('./source.js').Source} Source */
/** @typedef {import('./source.js').SessionRow} SessionRow */
/** @typedef {import('./source.js').BodyAddress} BodyAddress */
/** @typedef {import('./source.js').StoredMessage} StoredMessage */
/** @typedef {import('./source.js').RenderedTexts} RenderedTexts */
/** @typedef {import('./source.js').MessageFilter} MessageFilter */
/** @typedef {{body: StoredMessage, texts: RenderedTexts, demands: string[]}} HeldBody */
/** @typedef {{version: string, reveal: boolean, structure: boolean}} AboutFile */

/** Blocks that stay decoded. Each holds about 2 MB of text, unless one message is longer. */
const MOST_BLOCKS = 12;

/** The most messages that a search finds. */
const MOST_FOUND = 200;

/** The source of this file. @returns {Source} */
export function embeddedSource() {
  const about = /** @type {AboutFile} */ (JSON.parse(elementText('export')));
  const blocks = new BlockShelf(document.querySelectorAll('script.bodies'));
  const opened = openFile();

  /** @type {Source['bodies']} */
  async function bodies(_name, addresses) {
    const { leftOut } = await opened;
    const found = addresses.map(async (address) => {
      const held = await blocks.find(address);
      return held === undefined ? leftOut(address) : held.body;
    });
    return Promise.all(found);
  }

  return {
    can: { answers: false, live: false, search: !about.structure },
    about: async () => ({
      version: about.version,
      reveal: about.reveal,
      live: false,
      store: '',
      option: null,
      writable: false,
      policies: [],
    }),
    sessions: async () => [(await opened).row],
    listed: async () => ({ read: 1, sessions: 1, older: 0 }),
    lost: async () => {
      const { timeline } = await opened;
      const { count } = timeline.requests;
      return { [timeline.session]: count === 0 ? 0 : timeline.wordsOutOfView(count - 1).length };
    },
    timeline: async (name) => {
      const { timeline } = await opened;
      if (name !== timeline.session) throw new Error(`This file holds ${timeline.session} only.`);
      return timeline;
    },
    follow: () => () => {},
    bodies,
    demands: (_name, addresses) =>
      Promise.all(addresses.map(async (address) => (await blocks.find(address))?.demands ?? [])),
    rendered: (_name, addresses) =>
      Promise.all(addresses.map(async (address) => (await blocks.find(address))?.texts ?? [])),
    answer: async () => {
      throw new Error('A file holds no answer to this: ask the command line of the store.');
    },
    search: async (query, _session, only) => searched(query, only, (await opened).timeline, blocks),
    digests: () => unpacked(elementText('digests')),
  };
}

/** Reads the timeline, and goes to its session, unless the address names a place in it. */
async function openFile() {
  const whole = await unpacked(elementText('timeline'));
  const timeline = Timeline.from(whole);
  if (place.peek().session === null) go({ session: timeline.session }, { replace: true });
  return { timeline, row: sessionRowOf(whole), leftOut: leftOutMessages(whole, timeline) };
}

/** @param {string} id */
function elementText(id) {
  return document.getElementById(id)?.textContent ?? 'null';
}

/** The blocks of a file: it knows which one holds a body, and keeps the last ones decoded. */
class BlockShelf {
  /** @param {Iterable<Element>} elements in the order of the log */
  constructor(elements) {
    this.elements = [...elements];
    this.firsts = this.elements.map((one) => addressOf(one.getAttribute('data-first') ?? ''));
    /** @type {RecentValues<Promise<Map<string, HeldBody>>>} */
    this.decoded = new RecentValues(MOST_BLOCKS);
  }

  /** @param {BodyAddress} address @returns {Promise<HeldBody | undefined>} undefined: the file does not hold it */
  async find(address) {
    const place = this.firsts.findLastIndex((first) => !isBehind(first, address));
    if (place < 0) return undefined;
    const block = this.decoded.get(place) ?? this.decoded.set(place, decodedBlock(this.elements[place]));
    return (await block).get(`${address.position}.${address.index}`);
  }
}

/** @param {string} text such as `48.0` */
function addressOf(text) {
  const [position = 0, index = 0] = text.split('.').map(Number);
  return { position, index };
}

/** @param {BodyAddress} one @param {BodyAddress} other */
function isBehind(one, other) {
  return one.position > other.position || (one.position === other.position && one.index > other.index);
}

/** @param {Element | undefined} element @returns {Promise<Map<string, HeldBody>>} */
async function decodedBlock(element) {
  /** @type {[number, number, StoredMessage, {parts?: import('./message-parts.js').SentPart[], texts?: RenderedTexts, demands?: string[]} | undefined][]} */
  const rows = await unpacked(element?.textContent ?? '');
  return new Map(
    rows.map(([position, index, body, more]) => [
      `${position}.${index}`,
      { body: withParts(body, more?.parts ?? []), texts: more?.texts ?? [], demands: more?.demands ?? [] },
    ]),
  );
}

/**
 * The value of a JSON text; of a string in it, the JSON whose compressed bytes are its base64.
 * @param {string} text
 * @returns {Promise<any>}
 */
async function unpacked(text) {
  const value = JSON.parse(text);
  if (typeof value !== 'string') return value;
  const packed = atob(value);
  const bytes = new Uint8Array(packed.length);
  for (let at = 0; at < packed.length; at += 1) bytes[at] = packed.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).json();
}

/**
 * What stands for a content that the file leaves out.
 * @param {any} whole
 * @param {Timeline} timeline
 * @returns {(address: BodyAddress) => StoredMessage}
 */
function leftOutMessages(whole, timeline) {
  /** @type {Map<string, number>} */
  const numbers = new Map();
  const { position, index, kind, characters, count } = timeline.messages;
  for (let number = 0; number < count; number += 1) {
    numbers.set(`${position[number]}.${index[number]}`, number);
  }
  return (address) => {
    const number = numbers.get(`${address.position}.${address.index}`);
    const saying = (/** @type {string} */ content, role = 'user') => withParts({ role, content }, [['text', ['content']]]);
    if (number === undefined) return saying('[left out of this file]');
    const named = whole.legends.kinds[kind[number] ?? 0];
    const size = (characters[number] ?? 0).toLocaleString('en');
    return saying(`[left out of this file: ${size} characters]`, ROLES[named]);
  };
}

/** @type {Record<string, string>} */
const ROLES = { system: 'system', assistant: 'assistant', result: 'tool' };

/** The kinds of message by the words of a filter. @type {Record<string, string>} */
const KINDS = { person: 'human', host: 'user', model: 'assistant' };

/**
 * The numbers of the messages that a filter lets through, as far as no text is needed for it.
 * @param {Timeline} timeline
 * @param {MessageFilter | null} only
 */
function filteredNumbers({ messages: { kind, time, count } }, only) {
  const all = Array.from({ length: count }, (_, number) => number);
  if (only === null) return all;
  const { role, since, until } = only;
  const wanted = role === null ? -1 : LOG_GROUPS.indexOf(KINDS[role] ?? role);
  return all.reverse().filter((number) => {
    if (wanted >= 0 && kind[number] !== wanted) return false;
    if (since === null && until === null) return true;
    const day = time[number] ? new Date(time[number]).toISOString().slice(0, 10) : '';
    return day !== '' && day >= (since ?? '') && day <= (until ?? '9');
  });
}

/** @param {string} query @param {MessageFilter | null} only @param {Timeline} timeline @param {BlockShelf} blocks */
async function searched(query, only, timeline, blocks) {
  const words = wordsOfQuery(query);
  const found = [];
  const { position, index, time } = timeline.messages;
  for (const number of words.length === 0 && only === null ? [] : filteredNumbers(timeline, only)) {
    const address = { position: position[number] ?? -1, index: index[number] ?? 0 };
    const message = (await blocks.find(address))?.body;
    const match = message ? foundIn(message, words) : null;
    if (match === null || (only?.errors && !partsOf(message).some((part) => part.failed))) continue;
    found.push({
      session: timeline.session,
      name: `#${number}`,
      number,
      position: address.position,
      role: match.role,
      time: time[number] ? new Date(time[number] ?? 0).toISOString() : null,
      score: match.score,
      snippet: match.snippet,
      message,
    });
  }
  // Messages with all words are found; where there are none, messages with any of them.
  const most = Math.max(0, ...found.map((one) => one.score));
  const all = found.filter((one) => most < words.length || one.score === words.length);
  all.sort((one, other) => other.score - one.score);
  return { found: all.slice(0, MOST_FOUND), total: all.length };
}

/** The session's row in a list of one, which leads back to it. @param {any} whole @returns {SessionRow} */
function sessionRowOf({ session, records, parent, source_format: format, compactions }) {
  const unknown = { title: null, project: null, model: null, tokens: null, cost: null, started: null, last: null };
  return {
    ...unknown, session, records, format, parent: parent?.session ?? null, forked_at: parent?.at ?? null,
    belongs_to: null, requests: 0, live: false, unpriced: 0,
    compactions: compactions.filter((/** @type {any} */ one) => one.outcome === 'applied').length,
  };
}
