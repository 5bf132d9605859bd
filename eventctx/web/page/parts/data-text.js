/**
 * Text that a program wrote: a unified diff with its lines coloured, or the text as it is.
 */

import { h } from '../core/element.js';
import { textNodes, textView } from './text.js';

/** A hunk's head, or that of a patch as models write it; only the beginning is looked at. */
const DIFF_HEAD = /^(?:@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|\*\*\* (?:Begin Patch|Update File: ))/m;
const LOOKED_AT = 20_000;

/** @param {string} text @param {{characters?: number, lines?: number}} [fold] @returns {HTMLElement} */
export function dataText(text, fold = {}) {
  const isDiff = DIFF_HEAD.test(text.slice(0, LOOKED_AT));
  return textView(text, { ...fold, class: 'data', ...(isDiff ? { nodes: diffNodes } : {}) });
}

/** @param {string} text @returns {Node[]} */
function diffNodes(text) {
  return diffRuns(text).map(([kind, run]) => h('span', { class: kind === '' ? null : kind }, textNodes(run)));
}

/**
 * The lines of a diff in runs of one kind: `ins`, `del`, `hunk` for heads, '' for all else.
 * @param {string} text
 * @returns {[kind: string, run: string][]}
 */
export function diffRuns(text) {
  /** @type {[string, string][]} */
  const runs = [];
  let isInHunk = false;
  for (const line of text.match(/[^\n]*\n|[^\n]+$/g) ?? []) {
    const isHead = /^(?:@@|\*\*\* |diff --git |index [0-9a-f]+\.\.|--- |\+\+\+ )/.test(line);
    // A line of a list begins with a dash as well: only within a hunk it was taken out.
    isInHunk = isHead ? /^(?:@@|\*\*\* )/.test(line) : isInHunk && /^[-+ \\\n]/.test(line);
    const kind = isHead ? 'hunk' : !isInHunk ? '' : line[0] === '+' ? 'ins' : line[0] === '-' ? 'del' : '';
    const last = runs.at(-1);
    if (last !== undefined && last[0] === kind) last[1] += line;
    else runs.push([kind, line]);
  }
  return runs;
}
