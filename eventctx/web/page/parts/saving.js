/** Files that the page hands to the browser as downloads; tables among them as CSV (RFC 4180). */

import { h } from '../core/element.js';

/** How a program that opens a table may read a text as a formula. */
const FORMULA = /^[=+\-@\t\r]/;

/** A download, of no type that a browser would open. @param {string} name @param {BlobPart} contents */
export function saveFile(name, contents) {
  const address = URL.createObjectURL(new Blob([contents], { type: 'application/octet-stream' }));
  const link = h('a', { href: address, download: name.replace(/[^\p{L}\p{N}. _-]/gu, '_') });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/**
 * A line for each row, after one with the names of their fields, in the order in which they come.
 * @param {readonly Record<string, unknown>[]} rows
 */
export function csvText(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const lines = [names, ...rows.map((row) => names.map((name) => row[name]))];
  return lines.map((cells) => `${cells.map(csvCell).join(',')}\r\n`).join('');
}

/** @param {unknown} value */
function csvCell(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number') return String(value);
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** @param {string} name of the file, without its ending @param {() => readonly Record<string, unknown>[]} rows */
export function csvButton(name, rows) {
  return h('button', {
    type: 'button', class: 'quiet', text: 'CSV', title: `Save this table: ${name}.csv`, 'aria-label': `Save as CSV: ${name}`,
    on: { click: () => saveFile(`${name}.csv`, csvText(rows())) },
  });
}
