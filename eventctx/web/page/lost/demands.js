// Demands: sentences of a person that ask for or forbid something, such as "Never touch main.py".
//
// The rule is `eventctx/messages/demands.py`; a test holds both to the same answers. They are what
// a compaction must not lose, so the page shows them first.

import { strengthOf } from './demand-cues.js';
import { pastedSpans } from './pasted.js';
import { personsPart, withoutElements } from './persons-words.js';

const LEAST_WORDS = 3;
const MOST_WORDS = 60;
const MOST_DEMANDS = 12;
/** What a person pastes beyond this is no list of demands. */
const MOST_DEMAND_CHARACTERS = 100_000;

const LINE_ENDS = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;
const SENTENCE_BREAK = new RegExp(
  '[.!?<。！？।](?:(?<=[.!?])(?<!(?<![\\p{L}\\p{N}_])(?:e\\.g|i\\.e|vs|cf|z\\.B|d\\.h)\\.)' +
  '["\'”)\\]]*\\s+(?:(?=["\'“(\\[*`]*[A-Z0-9])' +
  '|(?<!\\.\\.\\s)(?<!(?<![\\p{L}\\p{N}_])(?:etc|approx|incl|resp|ca)\\.\\s)(?<!^\\d\\.\\s)' +
  '(?<!^\\d\\d\\.\\s)(?=["\'“(\\[*`]*[\\p{L}\\p{N}_]))' +
  '|(?<=<)/?[a-zA-Z][\\p{L}\\p{N}_-]*>|(?<=[。！？।]))', 'gu');
const LIST_MARK = /^(?:[-*+•#]+|\p{Nd}{1,3}[.)])\s+/u;
const TOKEN =
  /[\p{L}\p{N}_\u0900-\u0963](?:[\p{L}\p{N}_\u0900-\u0963'./-]*[\p{L}\p{N}_\u0900-\u0963])?|[,;:()–—]|(?<=\s)-(?=\s)/gu;
const WIDE_LETTER = /[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]/;
const LEAST_WIDE = 5;
const LOOKS_LIKE_CODE =
  /[;{}]\s*$|^\s*(?:\$|>>>|[+-]{3} |@@|import |from \S+ import |def |class )|=>|->|\|\|/;
/** The beginning of a line that was quoted, or that a program logged. */
const NOT_SAID = new RegExp(
  '^\\s*(?:>|⨯|\\S+:\\p{Nd}+:|\\[?\\p{Nd}{1,4}[-:/]\\p{Nd}\\p{Nd}|at \\S+\\(|File "' +
  '|[\\p{L}\\p{N}_]*(?:Error|Exception|Warning): |[➜$%] ' +
  '|\\[?(?:ERROR|WARN|WARNING|INFO|DEBUG|FATAL|TRACE)(?![\\p{L}\\p{N}_])[\\]: ])', 'u');

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
  for (const { start, stop } of pastedSpans(spoken).reverse()) {
    spoken = `${spoken.slice(0, start)}\n${spoken.slice(stop)}`;
  }
  if (spoken.includes('<')) spoken = withoutElements(spoken);
  /** @type {Map<string, boolean>} */
  const found = new Map();
  let inCode = false;
  for (const line of spoken.split(LINE_ENDS)) {
    if (/^\s*(?:```|~~~)/.test(line)) inCode = !inCode;
    else if (!inCode && !NOT_SAID.test(line)) {
      for (const sentence of sentencesOf(line)) {
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
 * The sentences of a line but for questions.
 *
 * @param {string} line
 */
function sentencesOf(line) {
  /** @type {string[]} */
  const found = [];
  let begins = 0;
  for (const between of line.matchAll(SENTENCE_BREAK)) {
    const mark = between[0][0];
    if (!'?？'.includes(mark)) {
      found.push(line.slice(begins, between.index + Number('.!'.includes(mark))));
    }
    begins = between.index + between[0].length;
  }
  return [...found, line.slice(begins)];
}

/**
 * A sentence without its list mark, and whether its cue is strong; null if it is no demand.
 *
 * @param {string} sentence
 * @returns {[string | null, boolean]}
 */
function demandIn(sentence) {
  const bare = sentence.trim().replace(LIST_MARK, '').trim();
  if (/\?["'”)\]]*$/.test(bare)) return [null, false];
  const tokens = bare.toLowerCase().replaceAll('’', "'").match(TOKEN) ?? [];
  const said = tokens.map((one) => (';()–—-'.includes(one) ? ',' : one));
  const words = said.filter((one) => one !== ',' && one !== ':').length;
  const few = WIDE_LETTER.test(bare) ? [...bare].length < LEAST_WIDE : words < LEAST_WORDS;
  if (few || words > MOST_WORDS) return [null, false];
  const strong = strengthOf(` ${said.join(' ')} `);
  if (strong === null || LOOKS_LIKE_CODE.test(bare)) return [null, false];
  const characters = [...bare];
  const readable = characters.filter((one) => /[\p{L}\s\u0900-\u0963]/u.test(one)).length;
  return readable * 10 >= characters.length * 7 ? [bare, strong] : [null, false];
}
