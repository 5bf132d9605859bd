// The blocks of a person's message that the person did not type: `eventctx/messages/pasted.py`.

import { personsPart } from './persons-words.js';

const LEAST_PASTED = 2000;
const LOOKED_AT = 400;
const FOUR_WORDS = new RegExp(
  '(?<![\\p{L}\\p{N}_])(?:\\p{L}{2,}[,;:]? ){3}|[\\u3040-\\u30ff\\u3400-\\u9fff\\uac00-\\ud7af]', 'u');
const SIGNS = /[(){}[\]<>=;:/\\_|#"]/g;
const MACHINE_LINE =
  /^(?:(?:\t| {2})\s*(?![-*•]|\p{Nd}{1,3}[.)])\S|[<{}[\]|$+@]|[^\p{L}\p{N}_]?\p{Nd}{2,4}[-:/.]\p{Nd}|at |File ")/u;
const LINE = /[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*(?:\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]|$)/g;

/**
 * The pasted blocks of a text in a person's message, in order; most texts have none.
 *
 * @param {string} text
 * @returns {{start: number, stop: number}[]}
 */
export function pastedSpans(text) {
  if ([...text].length <= LEAST_PASTED) return [];
  const begins = personsPart(text);
  if (begins < 0) return [{ start: 0, stop: text.length }];
  const spans = [{ start: 0, stop: begins }, ...spansOfMachines(text, begins)];
  return spans.filter(({ start, stop }) => [...text.slice(start, stop)].length > LEAST_PASTED);
}

/** @param {string} text @param {number} at */
function spansOfMachines(text, at) {
  /** @type {{start: number, stop: number}[]} */
  const spans = [];
  /** @type {{start: number, stop: number} | null} */
  let run = null;
  for (const { start, stop, kind } of pastedKinds(text, at)) {
    if (kind === 'machine' && run) {
      run = { start: run.start, stop };
      continue;
    }
    if (run) spans.push(run);
    run = kind === 'machine' ? { start, stop } : null;
    if (kind === 'fence') spans.push({ start, stop });
  }
  return run ? [...spans, run] : spans;
}

/** @param {string} text @param {number} from */
function pastedKinds(text, from) {
  /** @type {{start: number, stop: number, kind: string}[]} */
  const blocks = [];
  let at = from;
  let fence = '';
  let begins = 0;
  let machines = 0;
  let lines = 0;
  const kindNow = () => (machines * 2 > lines ? 'machine' : 'prose');
  for (const [line] of text.slice(from).matchAll(LINE)) {
    if (!line) break;
    const bare = line.trim();
    const opens = !fence && /^(?:```|~~~)/.test(bare);
    if (lines && !fence && (opens || !bare)) {
      blocks.push({ start: begins, stop: at, kind: kindNow() });
      machines = 0;
      lines = 0;
    }
    if (bare || fence) {
      begins = lines ? begins : at;
      lines += 1;
      machines += Number(isOfMachine(line));
    }
    at += line.length;
    if (fence && bare.startsWith(fence) && !bare.replaceAll(fence[0], '')) {
      blocks.push({ start: begins, stop: at, kind: 'fence' });
      fence = '';
      machines = 0;
      lines = 0;
    } else if (opens) {
      fence = bare.slice(0, 3);
    }
  }
  if (lines) blocks.push({ start: begins, stop: at, kind: fence ? 'fence' : kindNow() });
  return blocks;
}

/** @param {string} line */
function isOfMachine(line) {
  const seen = line.slice(0, LOOKED_AT);
  if (MACHINE_LINE.test(seen)) return true;
  return !FOUR_WORDS.test(seen) && (seen.match(SIGNS) ?? []).length > 1;
}
