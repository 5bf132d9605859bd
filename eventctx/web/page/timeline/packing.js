/**
 * A timeline document with its columns as typed arrays.
 *
 * Made in the worker where there is one: the arrays are handed to the page without a copy. What is
 * few (compactions, turns, insertions) stays as the document has it.
 */

import { SumTable } from './sums.js';
import { ViewTable } from './views.js';

/** @import { Numbers } from './columns.js' */
/** @import { PackedSums } from './sums.js' */

/**
 * An entry of a view that is no message as it was added; its id is -1 - its place in the list.
 * `position` and `index` are the place of its own body, where it has one.
 * @typedef {{
 *   kind: 'shortened' | 'stripped' | 'partial' | 'insertion' | 'synthetic' | 'opening',
 *   group: number, tokens: number, mark: string, number?: number, position?: number, index?: number,
 *   name?: string, stands_for?: [number, number][], call?: string, omit?: string[],
 * }} ExtraEntry
 */

/**
 * @typedef {{
 *   position: number, time: number, turn: number | null, iteration: number | null,
 *   outcome: string, trigger: string, strategy: string, number: number,
 *   before: number, before_estimated: boolean, after: number, after_estimated: boolean,
 *   recorded: number | null, messages_before: number, messages_after: number,
 *   budget: number | null, threshold: number | null, target: number | null, duration: number,
 *   requested_by: string | null, fallback: string | null, error: string | null,
 *   insertions: number[], cache: CacheCost | null,
 * }} CompactionEntry
 */

/** What a compaction costs in the provider's cache and saves, in tokens.
 * @typedef {{
 *   given_up: number, rewritten: number, saved: number, expected: number | null, thinking: number,
 *   reported: {requests: number, over: boolean, read: number, write: number, misses: number, missed: number} | null,
 * }} CacheCost
 */

/** @typedef {{code: string, rule: string}} ReasonEntry */

/** @typedef {{number: number, turn_id: string | null, first: number, last: number, time: number}} TurnEntry */

/**
 * @typedef {{
 *   session: string, relation: string, kind: string | null, call_id: string | null, position: number,
 * }} LinkEntry
 */

/** Messages `0` to `tokens.length - 1` as another model's estimator counts them, from a request on.
 * @typedef {{from: number, tokens: ArrayLike<number>}} Recount
 */

/** A loss that is inferred of the request at a position, and the sentence that says so.
 * @typedef {{position: number, kind: 'prompt' | 'cache', tokens: number, words: string}} LossEntry
 */

/**
 * @typedef {{
 *   session: string, head: number, digest: string, after: number, after_digest?: string,
 *   records: number,
 *   mirror: string | null, source_format?: string | null,
 *   parent: {session: string, at: number} | null,
 *   extras: ExtraEntry[], models: string[], compactions: CompactionEntry[], reasons: ReasonEntry[],
 *   turns: TurnEntry[], links: LinkEntry[], calls: Record<string, number>,
 *   recounts?: Recount[], losses?: LossEntry[],
 *   updated?: {
 *     requests?: Record<string, Record<string, number>>,
 *     compactions?: Record<string, Partial<CompactionEntry>>,
 *   },
 * }} DocumentRest
 */

/** A document as the server sends it.
 * @typedef {DocumentRest & {
 *   format: number,
 *   messages: Record<string, number[]> & {first: number},
 *   requests: Record<string, any> & {first: number},
 *   changes: Record<string, number[]>,
 * }} TimelineDocument
 */

/** @typedef {Record<string, Numbers>} PackedColumns */

/** A document with typed arrays. The runs of all views lie in one array; those of request `r` begin
 * at `addStart[r]` and end before `addStart[r + 1]`. `sums` are made by `withSums`.
 * @typedef {DocumentRest & {
 *   packed: true, messagesFirst: number, requestsFirst: number,
 *   messages: PackedColumns, requests: PackedColumns, changes: PackedColumns,
 *   addStart: Int32Array, addRuns: Int32Array, breaks: string[], digests: string[],
 *   sums?: PackedSums,
 * }} PackedDocument
 */

const DOCUMENT_FORMAT = 1;

/** How each column is stored. Times are too great for 32 bits, tokens of one entry are not. */
export const MESSAGE_COLUMNS = Object.freeze({
  position: Int32Array,
  index: Int32Array,
  kind: Uint8Array,
  tokens: Int32Array,
  characters: Int32Array,
  time: Float64Array,
  turn: Int32Array,
  caller: Int32Array,
  demands: Int32Array,
});

export const REQUEST_COLUMNS = Object.freeze({
  position: Int32Array,
  time: Float64Array,
  turn: Int32Array,
  iteration: Int32Array,
  known: Uint8Array,
  total: Int32Array,
  estimated: Uint8Array,
  messages: Int32Array,
  beside: Int32Array,
  system: Int32Array,
  tools: Int32Array,
  cached: Int32Array,
  budget: Int32Array,
  entries: Int32Array,
  keep: Int32Array,
  last: Int32Array,
  plan: Int32Array,
  model: Int32Array,
  additions: Int32Array,
  missing: Int32Array,
  floor: Uint8Array,
});

export const CHANGE_COLUMNS = Object.freeze({
  position: Int32Array,
  first: Int32Array,
  last: Int32Array,
  what: Uint8Array,
  reason: Int32Array,
  compaction: Int32Array,
  into: Int32Array,
});

/**
 * The document with typed arrays; one that has them already comes back as it is.
 * Throws an Error for a document of another format.
 * @param {TimelineDocument | PackedDocument} document
 * @returns {PackedDocument}
 */
export function packDocument(document) {
  if ('packed' in document) return document;
  const { format, messages, requests, changes, ...rest } = document;
  if (format !== DOCUMENT_FORMAT) {
    throw new Error(`timeline: expected a document of format ${DOCUMENT_FORMAT}, found ${format}`);
  }
  return {
    ...rest,
    packed: true,
    messagesFirst: messages.first,
    requestsFirst: requests.first,
    messages: packColumns(MESSAGE_COLUMNS, messages),
    requests: packColumns(REQUEST_COLUMNS, requests),
    changes: packColumns(CHANGE_COLUMNS, changes),
    ...packRuns(requests.add),
    breaks: requests.breaks,
    digests: requests.digest,
  };
}

/**
 * A whole document with the sums of all its requests: the most work there is in one.
 * @param {PackedDocument} packed
 * @returns {PackedDocument}
 */
export function withSums(packed) {
  const views = new ViewTable();
  views.append(packed);
  const sums = new SumTable();
  const { kind, tokens } = packed.messages;
  sums.append(views, kind, tokens, packed.extras, packed.recounts ?? []);
  return { ...packed, sums: sums.packed() };
}

/**
 * The buffers of a packed document, to be handed from the worker to the page.
 * @param {PackedDocument} packed
 * @returns {ArrayBuffer[]}
 */
export function packedBuffers(packed) {
  const tables = [packed.messages, packed.requests, packed.changes];
  const columns = [
    ...tables.flatMap((table) => Object.values(table)),
    packed.addStart,
    packed.addRuns,
    ...Object.values(packed.sums ?? {}),
  ];
  return columns.map((column) => /** @type {ArrayBuffer} */ (column.buffer));
}

/**
 * @param {Readonly<Record<string, {from(values: ArrayLike<number>): Numbers}>>} kinds
 * @param {Record<string, any>} columns
 * @returns {PackedColumns}
 */
function packColumns(kinds, columns) {
  /** @type {PackedColumns} */
  const packed = {};
  for (const [name, kind] of Object.entries(kinds)) packed[name] = kind.from(columns[name]);
  return packed;
}

/**
 * @param {number[][]} runs for each request its pairs of a first and a last entry id
 * @returns {{addStart: Int32Array, addRuns: Int32Array}}
 */
function packRuns(runs) {
  const addStart = new Int32Array(runs.length + 1);
  runs.forEach((pairs, request) => {
    addStart[request + 1] = addStart[request] + pairs.length;
  });
  const addRuns = new Int32Array(addStart[runs.length]);
  runs.forEach((pairs, request) => addRuns.set(pairs, addStart[request]));
  return { addStart, addRuns };
}
