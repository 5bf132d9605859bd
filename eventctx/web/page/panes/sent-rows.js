// The rows of a request: what stood with the messages, the entries of the view in order, and what
// was added on the way. As plain data, so that they can be tested without a page.

import { entryName, extraEntries, standsFor } from '../timeline/entries.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/**
 * `beside`: tokens with the messages, `system` and `tools` by themselves where they are known.
 * `entry`: of the view; `isNew` if the request before did not hold it so. `sent`: a message of an
 * observed request, as it was sent. `added`: one that the host sent in addition. `missing`: how many
 * of the view it did not send.
 * @typedef {{type: 'beside', what: 'system'|'tools'|'both', tokens: number, value?: any}
 *   | {type: 'entry', id: number, place: number, isNew: boolean}
 *   | {type: 'sent', message: any, numbers: number[], injected: any[], place: number}
 *   | {type: 'added', message: any}
 *   | {type: 'unsent', missing: number, additions: number, untold: number | null}} SentRow
 */

/**
 * @param {Timeline} timeline
 * @param {number} request
 * @param {Set<number>} fresh entries that the request before did not hold
 * @param {any} answer what the engine says of the request (`view`), null without it
 * @returns {SentRow[]}
 */
export function sentRows(timeline, request, fresh, answer) {
  const asSent = answer?.as_sent ?? null;
  const rows = besideRows(timeline, request, answer);
  if (asSent !== null) {
    asSent.messages.forEach((/** @type {any} */ one, /** @type {number} */ place) => {
      rows.push({ type: 'sent', message: one.message, numbers: one.numbers, injected: one.injected, place });
    });
    return rows;
  }
  const additions = additionsBehind(answer);
  rows.push(...(additions.get(0) ?? []));
  timeline.view(request).forEach((id, place) => {
    rows.push({ type: 'entry', id, place, isNew: fresh.has(id) });
    rows.push(...(additions.get(place + 1) ?? []));
  });
  const { additions: added, missing } = timeline.requests;
  const unknown = answer === null ? Math.max(0, added[request]) : 0;
  const untold = added[request] < 0 ? -1 - added[request] : null;
  if (unknown > 0 || missing[request] > 0 || untold !== null) {
    rows.push({ type: 'unsent', missing: Math.max(0, missing[request]), additions: unknown, untold });
  }
  return rows;
}

/**
 * The entries of a request that the one before does not hold in the same form.
 * @param {Timeline} timeline
 * @param {number} before -1: nothing was sent before
 * @param {number} after
 * @returns {Set<number>}
 */
export function newEntries(timeline, before, after) {
  const held = new Set(timeline.view(before));
  const names = new Set(extraEntries(timeline, before).map(entryName));
  return new Set(Array.from(timeline.view(after)).filter((id) => {
    if (id >= 0 || held.has(id)) return !held.has(id);
    const entry = timeline.entry(id);
    return entry.number !== null || !names.has(entryName(entry));
  }));
}

/** @param {Timeline} timeline @param {number} request @param {any} answer @returns {SentRow[]} */
function besideRows(timeline, request, answer) {
  const { beside, system, tools } = timeline.requests;
  const systemText = answer?.as_sent?.system ?? null;
  const toolList = answer?.as_sent?.tools ?? answer?.tools ?? null;
  /** @type {SentRow[]} */
  const rows = [];
  const apart = system[request] >= 0 || tools[request] >= 0;
  if (systemText !== null || system[request] > 0) {
    rows.push({ type: 'beside', what: 'system', tokens: system[request], value: systemText });
  }
  if (toolList !== null || tools[request] > 0) {
    rows.push({ type: 'beside', what: 'tools', tokens: tools[request], value: toolList });
  }
  if (!apart && rows.length === 0 && beside[request] !== 0) {
    rows.push({ type: 'beside', what: 'both', tokens: beside[request] });
  }
  return rows;
}

/**
 * Messages that the host sent in addition, by how many entries of the view stand before them.
 * @param {any} answer
 * @returns {Map<number, SentRow[]>}
 */
function additionsBehind(answer) {
  /** @type {Map<number, SentRow[]>} */
  const found = new Map();
  for (const report of answer?.sent ?? []) {
    for (const { behind, message } of report.additions) {
      const rows = found.get(behind) ?? [];
      rows.push({ type: 'added', message });
      found.set(behind, rows);
    }
  }
  return found;
}

/**
 * The place of the row that shows a message, or stands for it; -1 without one.
 * @param {Timeline} timeline
 * @param {SentRow[]} rows
 * @param {number} number
 * @returns {{row: number, standsFor: boolean}}
 */
export function rowOfMessage(timeline, rows, number) {
  let stands = -1;
  for (let at = 0; at < rows.length; at++) {
    const row = rows[at];
    if (row.type === 'sent' && row.numbers.includes(number)) return { row: at, standsFor: false };
    if (row.type !== 'entry') continue;
    if (row.id === number) return { row: at, standsFor: false };
    if (row.id >= 0) continue;
    const entry = timeline.entry(row.id);
    if (entry.number === number && entry.kind !== 'synthetic') return { row: at, standsFor: false };
    if (stands < 0 && standsFor(entry, number)) stands = at;
  }
  return { row: stands, standsFor: stands >= 0 };
}
