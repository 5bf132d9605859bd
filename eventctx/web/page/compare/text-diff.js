// What two texts differ in: by lines, and inside lines that changed by words.
//
// Myers' greedy algorithm (An O(ND) Difference Algorithm, 1986) between the common beginning and
// the common end. The trace costs memory with the square of the differences, so their number is
// bounded: texts that have little in common are shown one after the other.

/** @typedef {'same' | 'gone' | 'new'} Fate */
/** @typedef {{fate: Fate, text: string}} Piece */
/** @typedef {{fate: Fate, pieces: Piece[]}} DiffLine */

const MOST_DIFFERENCES = 1200;
const MOST_WORDS_IN_LINE = 800;

/**
 * The steps from one list to another, in order: every item of both is in exactly one step, but
 * those that are the same in both, which stand once.
 *
 * @param {string[]} before
 * @param {string[]} after
 * @returns {Piece[]}
 */
export function listDiff(before, after) {
  let start = 0;
  const least = Math.min(before.length, after.length);
  while (start < least && before[start] === after[start]) start++;
  let end = 0;
  while (end < least - start && before[before.length - 1 - end] === after[after.length - 1 - end]) {
    end++;
  }
  const same = (/** @type {string} */ text) => ({ fate: /** @type {Fate} */ ('same'), text });
  return [
    ...before.slice(0, start).map(same),
    ...middleSteps(before.slice(start, before.length - end), after.slice(start, after.length - end)),
    ...before.slice(before.length - end).map(same),
  ];
}

/**
 * The lines of two texts as one list. A line that was replaced by a like one has its words marked.
 *
 * @param {string} before
 * @param {string} after
 * @returns {DiffLine[]}
 */
export function textDiff(before, after) {
  const steps = listDiff(before.split('\n'), after.split('\n'));
  /** @type {DiffLine[]} */
  const lines = [];
  let at = 0;
  while (at < steps.length) {
    if (steps[at].fate === 'same') {
      lines.push({ fate: 'same', pieces: [steps[at++]] });
      continue;
    }
    /** @type {string[]} */
    const gone = [];
    /** @type {string[]} */
    const fresh = [];
    while (at < steps.length && steps[at].fate !== 'same') {
      (steps[at].fate === 'gone' ? gone : fresh).push(steps[at].text);
      at++;
    }
    lines.push(...replacedLines(gone, fresh));
  }
  return lines;
}

/**
 * A diff with long runs of equal lines left out: `{skipped: n}` stands for n of them.
 *
 * @param {DiffLine[]} lines
 * @param {number} around equal lines that stay on both sides of a difference
 * @returns {(DiffLine | {skipped: number})[]}
 */
export function withoutTheSame(lines, around = 3) {
  const near = new Uint8Array(lines.length);
  lines.forEach((line, index) => {
    if (line.fate !== 'same') near.fill(1, Math.max(0, index - around), index + around + 1);
  });
  /** @type {(DiffLine | {skipped: number})[]} */
  const kept = [];
  let skipped = 0;
  lines.forEach((line, index) => {
    // A single line takes no more room than the note that it is left out.
    const alone = !near[index] && near[index - 1] !== 0 && near[index + 1] !== 0;
    if (near[index] || alone) {
      if (skipped) kept.push({ skipped });
      skipped = 0;
      kept.push(line);
    } else {
      skipped++;
    }
  });
  if (skipped) kept.push({ skipped });
  return kept;
}

/**
 * Lines that gave way to others. Those that are next to each other and have half of their words in
 * common are compared word by word.
 *
 * @param {string[]} gone
 * @param {string[]} fresh
 * @returns {DiffLine[]}
 */
function replacedLines(gone, fresh) {
  const pairs = gone.length === fresh.length ? gone.map((text, at) => wordDiff(text, fresh[at])) : [];
  /** @type {(fate: Fate, text: string, words: Piece[] | null | undefined) => DiffLine} */
  const line = (fate, text, words) => ({
    fate,
    pieces: words?.filter((one) => one.fate === 'same' || one.fate === fate) ?? [{ fate, text }],
  });
  return [
    ...gone.map((text, at) => line('gone', text, pairs[at])),
    ...fresh.map((text, at) => line('new', text, pairs[at])),
  ];
}

/**
 * The words of two lines as one list; null where they have too little in common to be compared.
 *
 * @param {string} before
 * @param {string} after
 * @returns {Piece[] | null}
 */
function wordDiff(before, after) {
  const left = before.match(/\w+|\s+|[^\w\s]/gu) ?? [];
  const right = after.match(/\w+|\s+|[^\w\s]/gu) ?? [];
  if (left.length + right.length > MOST_WORDS_IN_LINE) return null;
  const steps = listDiff(left, right);
  const kept = steps.filter(({ fate }) => fate === 'same').length;
  if (kept * 2 < Math.max(left.length, right.length)) return null;
  /** @type {Piece[]} */
  const joined = [];
  for (const step of steps) {
    const last = joined.at(-1);
    if (last?.fate === step.fate) last.text += step.text;
    else joined.push({ ...step });
  }
  return joined;
}

/** @param {string[]} before @param {string[]} after @returns {Piece[]} */
function middleSteps(before, after) {
  const gone = before.map((text) => ({ fate: /** @type {Fate} */ ('gone'), text }));
  const fresh = after.map((text) => ({ fate: /** @type {Fate} */ ('new'), text }));
  if (!gone.length || !fresh.length) return [...gone, ...fresh];
  const trace = reachedEnds(before, after);
  return trace ? walkedBack(trace, before, after) : [...gone, ...fresh];
}

/**
 * Myers' search: for each number of differences the furthest place reached on every diagonal; null
 * when the bound is reached first.
 *
 * @param {string[]} before
 * @param {string[]} after
 * @returns {Int32Array[] | null}
 */
function reachedEnds(before, after) {
  const most = Math.min(before.length + after.length, MOST_DIFFERENCES);
  const furthest = new Int32Array(2 * most + 3);
  const middle = most + 1;
  /** @type {Int32Array[]} */
  const trace = [];
  for (let d = 0; d <= most; d++) {
    trace.push(furthest.slice(middle - d - 1, middle + d + 2));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && furthest[middle + k - 1] < furthest[middle + k + 1]);
      let x = down ? furthest[middle + k + 1] : furthest[middle + k - 1] + 1;
      while (x < before.length && x - k < after.length && before[x] === after[x - k]) x++;
      furthest[middle + k] = x;
      if (x >= before.length && x - k >= after.length) return trace;
    }
  }
  return null;
}

/** @param {Int32Array[]} trace @param {string[]} before @param {string[]} after @returns {Piece[]} */
function walkedBack(trace, before, after) {
  /** @type {Piece[]} */
  const steps = [];
  let x = before.length;
  let y = after.length;
  for (let d = trace.length - 1; d >= 0; d--) {
    const at = (/** @type {number} */ k) => trace[d][k + d + 1];
    const k = x - y;
    const down = k === -d || (k !== d && at(k - 1) < at(k + 1));
    const beforeX = d === 0 ? 0 : at(down ? k + 1 : k - 1);
    const beforeY = d === 0 ? 0 : beforeX - (down ? k + 1 : k - 1);
    while (x > beforeX && y > beforeY) {
      if (d > 0 && x === beforeX + (down ? 0 : 1) && y === beforeY + (down ? 1 : 0)) break;
      steps.push({ fate: 'same', text: before[--x] });
      y--;
    }
    if (d === 0) break;
    if (down) steps.push({ fate: 'new', text: after[--y] });
    else steps.push({ fate: 'gone', text: before[--x] });
  }
  return steps.reverse();
}
