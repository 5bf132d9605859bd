/** Where compactions stand between requests, and how their marks find room. No DOM. */

/**
 * Compactions before one request: `numbers` of those that were applied, `tried` others.
 * @typedef {{request: number, numbers: number[], tried: number}} Cliff
 */

/**
 * @param {readonly {position: number, number: number}[]} compactions in order of position
 * @param {(position: number) => number} requestAt the last request at or before a position
 * @returns {Cliff[]}
 */
export function cliffsOf(compactions, requestAt) {
  /** @type {Cliff[]} */
  const cliffs = [];
  for (const { position, number } of compactions) {
    // What a compaction did shows first in the request after it.
    const request = requestAt(position) + 1;
    let cliff = cliffs.at(-1);
    if (cliff?.request !== request) {
      cliff = { request, numbers: [], tried: 0 };
      cliffs.push(cliff);
    }
    if (number > 0) cliff.numbers.push(number);
    else cliff.tried += 1;
  }
  return cliffs;
}

/** `3`, or `3–5` for several before one request; empty when none was applied. @param {Cliff} cliff */
export function cliffLabel({ numbers }) {
  const [first, last] = [numbers[0], numbers.at(-1)];
  if (first === undefined) return '';
  return first === last ? String(first) : `${first}–${last}`;
}

/**
 * Cliffs with a place for their mark; marks that would cover one another become one.
 * @param {readonly Cliff[]} cliffs
 * @param {(request: number) => number} xOf
 * @param {number} room
 * @returns {{x: number, cliff: Cliff}[]}
 */
export function cliffMarks(cliffs, xOf, room) {
  /** @type {{x: number, cliff: Cliff}[]} */
  const marks = [];
  for (const cliff of cliffs) {
    const x = xOf(cliff.request);
    const before = marks.at(-1);
    if (before && x - before.x < room) {
      const { request, numbers, tried } = before.cliff;
      before.cliff = { request, numbers: [...numbers, ...cliff.numbers], tried: tried + cliff.tried };
    } else {
      marks.push({ x, cliff });
    }
  }
  return marks;
}
