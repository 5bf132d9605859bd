// Demands: sentences of a person that ask for or forbid something, such as "Never touch main.py".
//
// The rule is `eventctx/messages/demands.py`; a test holds both to the same answers. They are what
// a compaction must not lose, so the page shows them first.

import { personsPart, withoutElements } from './persons-words.js';

const STRONG_CUES = [
  'never', 'always', 'must', "mustn't", "don't", 'only', 'ensure', 'forbidden', 'require',
  'required', 'do not', 'make sure', 'not allowed', 'under no circumstances', 'no matter',
];
const CUES = [
  ...STRONG_CUES,
  'should', "shouldn't", 'shall', 'instead', 'without', 'avoid', 'use', 'keep', 'prefer',
  'please', "can't", 'cannot', "won't", 'stop', 'remember', 'leave', "let's", 'need to',
  'needs to', 'has to', 'have to', 'be sure', 'no longer', 'stick to', 'at most', 'at least',
  'rather than', 'i want', "i'd like",
];
const LEAST_WORDS = 3;
const MOST_WORDS = 60;
const MOST_DEMANDS = 12;
/** What a person pastes beyond this is no list of demands. */
const MOST_DEMAND_CHARACTERS = 100_000;

const LINE_ENDS = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;
const SENTENCE_BREAK =
  /(?<=[.!?])["'”)\]]*\s+(?=["'“([*`]*[A-Z0-9])|<\/?[a-zA-Z][\p{L}\p{N}_-]*>|[。！？]/u;
const LIST_MARK = /^(?:[-*+•>#]+|\p{Nd}{1,3}[.)])\s+/u;
const SPOKEN_WORD = /[a-z0-9_][\p{L}\p{N}_'./-]*/gu;
const LOOKS_LIKE_CODE =
  /[;{}]\s*$|^\s*(?:\$|>>>|[+-]{3} |@@|import |from \S+ import |def |class )|=>|->|\|\|/;

/**
 * The demands of one text of a person, as they stand in it, in order.
 *
 * @param {string} text
 * @returns {string[]}
 */
export function demandsOfText(text) {
  const begins = personsPart(text);
  if (begins < 0) return [];
  let spoken = text.slice(begins, begins + MOST_DEMAND_CHARACTERS);
  if (spoken.includes('<')) spoken = withoutElements(spoken);
  /** @type {Map<string, boolean>} */
  const found = new Map();
  let inCode = false;
  for (const line of spoken.split(LINE_ENDS)) {
    if (/^\s*(?:```|~~~)/.test(line)) inCode = !inCode;
    else if (!inCode) {
      for (const sentence of line.split(SENTENCE_BREAK)) {
        const [demand, strong] = demandIn(sentence);
        if (demand !== null && !found.has(demand)) found.set(demand, strong);
      }
    }
  }
  if (found.size <= MOST_DEMANDS) return [...found.keys()];
  const ranked = [...found].sort((a, b) => Number(b[1]) - Number(a[1])).slice(0, MOST_DEMANDS);
  const chosen = new Set(ranked.map(([sentence]) => sentence));
  return [...found.keys()].filter((sentence) => chosen.has(sentence));
}

/**
 * The demands of a message, given as its texts. What a harness wrote next to them is left out.
 *
 * @param {string[]} texts
 * @returns {string[]}
 */
export function demandsOfTexts(texts) {
  return [...new Set(texts.flatMap(demandsOfText))].slice(0, MOST_DEMANDS);
}

/**
 * A text in pieces, of which those that are demands are marked: joined, they are the text.
 *
 * @param {string} text
 * @param {string[]} demands
 * @returns {{text: string, demand: boolean}[]}
 */
export function markedPieces(text, demands) {
  const places = demands
    .map((demand) => ({ from: text.indexOf(demand), to: text.indexOf(demand) + demand.length }))
    .filter(({ from }) => from >= 0)
    .sort((a, b) => a.from - b.from);
  /** @type {{text: string, demand: boolean}[]} */
  const pieces = [];
  let at = 0;
  for (const { from, to } of places) {
    if (from < at) continue;
    if (from > at) pieces.push({ text: text.slice(at, from), demand: false });
    pieces.push({ text: text.slice(from, to), demand: true });
    at = to;
  }
  if (at < text.length) pieces.push({ text: text.slice(at), demand: false });
  return pieces;
}

/**
 * A sentence without its list mark, and whether its cue is strong; null if it is no demand.
 *
 * @param {string} sentence
 * @returns {[string | null, boolean]}
 */
function demandIn(sentence) {
  const bare = sentence.trim().replace(LIST_MARK, '').trim();
  const words = wordsOf(bare);
  const spoken = ` ${words.join(' ')} `;
  const has = (/** @type {string} */ cue) => spoken.includes(` ${cue} `);
  if (!CUES.some(has) || LOOKS_LIKE_CODE.test(bare)) return [null, false];
  if (words.length < LEAST_WORDS || words.length > MOST_WORDS) return [null, false];
  const characters = [...bare];
  const readable = characters.filter((one) => /[\p{L}\s]/u.test(one)).length;
  return readable * 10 >= characters.length * 7 ? [bare, STRONG_CUES.some(has)] : [null, false];
}

/** @param {string} text */
function wordsOf(text) {
  const found = text.toLowerCase().replaceAll('’', "'").match(SPOKEN_WORD) ?? [];
  return found.map((word) => word.replace(/['./-]+$/, ''));
}
