/**
 * A session at a glance, as the browser holds it: columns of numbers, and all that follows of them.
 *
 * It is made of a document of the server and grows by documents that go on from its head. It holds
 * no text. Every view, standing and sum is derived here, so looking around asks the server nothing.
 */

import { signal } from '../core/signals.js';
import { ChangeTable } from './changes.js';
import { growColumns, lastNotAbove } from './columns.js';
import { entryOf } from './entries.js';
import { groupOf, LOG_GROUPS, SCREEN_GROUPS } from './groups.js';
import { MESSAGE_COLUMNS, packDocument, REQUEST_COLUMNS } from './packing.js';
import { StandingTable, WordsTable } from './standings.js';
import { shareOut, SumTable } from './sums.js';
import { ViewTable } from './views.js';

/** @import { GrowingColumn, Numbers } from './columns.js' */
/** @import { ViewEntry } from './entries.js' */
/** @import { CompactionEntry, ExtraEntry, LinkEntry, LossEntry, PackedDocument, ReasonEntry, Recount, TimelineDocument, TurnEntry } from './packing.js' */
/** @import { MessageStanding } from './standings.js' */
/** @import { WordsOut } from './standings.js' */

/** @template {Record<string, new (length: number) => Numbers>} C @typedef {{count: number} & {[K in keyof C]: InstanceType<C[K]>}} Table */
/** @typedef {Table<typeof MESSAGE_COLUMNS>} MessageTable */
/** @typedef {Table<typeof REQUEST_COLUMNS> & {breaks: string[], digest: string[]}} RequestTable */

export class Timeline {
  /** @param {PackedDocument} first */
  constructor(first) {
    this.session = first.session;
    this.head = -1;
    this.digest = '';
    this.records = 0;
    /** @type {string | null} */
    this.mirror = first.mirror;
    this.importer = first.source_format ?? null;
    this.parent = first.parent;
    /** Ticks when the timeline grows or an earlier row reads otherwise. */
    this.version = signal(0);
    /** @type {Record<string, GrowingColumn<Numbers>>} */
    this.messageColumns = {};
    /** @type {Record<string, GrowingColumn<Numbers>>} */
    this.requestColumns = {};
    this.messages = /** @type {MessageTable} */ (/** @type {unknown} */ ({ count: 0 }));
    this.requests = /** @type {RequestTable} */ (
      /** @type {unknown} */ ({ count: 0, breaks: [], digest: [] })
    );
    /** @type {ExtraEntry[]} */
    this.extras = [];
    /** @type {string[]} */
    this.models = [];
    /** @type {CompactionEntry[]} */
    this.compactions = [];
    /** @type {ReasonEntry[]} */
    this.reasons = [];
    /** @type {TurnEntry[]} */
    this.turns = [];
    /** @type {LinkEntry[]} */
    this.links = [];
    /** @type {Record<string, number>} */
    this.calls = {};
    /** @type {Recount[]} */
    this.recounts = [];
    /** @type {LossEntry[]} */
    this.losses = [];
    this.views = new ViewTable();
    this.sumTable = new SumTable();
    this.changes = new ChangeTable();
    this.wordsTable = new WordsTable();
    this.standingTable = new StandingTable(this);
    this.logShares = new Int32Array(LOG_GROUPS.length);
  }

  /** @param {TimelineDocument | PackedDocument} document a whole one @returns {Timeline} */
  static from(document) {
    const packed = packDocument(document);
    if (packed.after !== -1) {
      throw new Error(`timeline: expected a whole document, found one after @${packed.after}`);
    }
    const timeline = new Timeline(packed);
    timeline.take(packed);
    return timeline;
  }

  /** Grows by a document that goes on from this timeline's head. @param {TimelineDocument | PackedDocument} delta */
  append(delta) {
    const packed = packDocument(delta);
    if (packed.session !== this.session || packed.after !== this.head) {
      throw new Error(
        `timeline: expected ${this.session} after @${this.head}, ` +
          `found ${packed.session} after @${packed.after}`,
      );
    }
    this.take(packed);
    this.version.value = this.version.peek() + 1;
  }

  /** @param {PackedDocument} packed */
  take(packed) {
    growColumns(this.messageColumns, this.messages, MESSAGE_COLUMNS, packed.messages);
    growColumns(this.requestColumns, this.requests, REQUEST_COLUMNS, packed.requests);
    appendAll(this.requests.breaks, packed.breaks);
    appendAll(this.requests.digest, packed.digests);
    for (const key of /** @type {const} */ (['extras', 'models', 'compactions', 'reasons', 'links'])) {
      appendAll(/** @type {any[]} */ (this[key]), packed[key]);
    }
    for (const turn of packed.turns) this.takeTurn(turn);
    Object.assign(this.calls, packed.calls);
    this.update(packed.updated ?? {});
    this.changes.append(packed);
    this.wordsTable.append(this.messages.kind, this.changes);
    this.views.append(packed);
    this.standingTable.forget();
    this.losses = packed.losses ?? this.losses; // each document has them all
    const recounts = packed.recounts ?? [];
    appendAll(this.recounts, recounts);
    const { kind, tokens } = this.messages;
    if (packed.sums) this.sumTable = SumTable.from(packed.sums);
    else this.sumTable.append(this.views, kind, tokens, this.extras, recounts);
    this.head = packed.head;
    this.digest = packed.digest;
    this.records = packed.records;
  }

  /** @param {TurnEntry} turn */
  takeTurn(turn) {
    const known = this.turns.findLastIndex(
      (one) => one.number === turn.number && one.first === turn.first,
    );
    if (known < 0) this.turns.push(turn);
    else this.turns[known] = turn;
  }

  /** @param {NonNullable<PackedDocument['updated']>} updated */
  update(updated) {
    for (const [place, row] of Object.entries(updated.requests ?? {})) {
      for (const [name, value] of Object.entries(row)) {
        /** @type {any} */ (this.requests)[name][place] = value;
      }
    }
    for (const [place, row] of Object.entries(updated.compactions ?? {})) {
      Object.assign(this.compactions[Number(place)], row);
    }
  }

  /**
   * The entry ids of a request's view, in order; shared, so do not write to it.
   * @param {number} request
   * @returns {Int32Array}
   */
  view(request) {
    return this.views.of(request);
  }

  /**
   * @param {number} id
   * @param {number} [request] at which its tokens are wanted; the last one without it
   * @returns {ViewEntry}
   */
  entry(id, request = this.requests.count) {
    return entryOf(this, id, request);
  }

  /**
   * The standing of every message at a request, as codes; shared, so do not write to it.
   * @param {number} request
   * @returns {Uint8Array}
   */
  standings(request) {
    return this.standingTable.at(request);
  }

  /**
   * The standing of one message at a request: `change` is the place of the change that caused it in
   * `changes`, -1 without one; `extra` is the id of the entry that shows it in part.
   * @param {number} number
   * @param {number} request
   * @returns {MessageStanding}
   */
  standing(number, request) {
    return this.standingTable.of(number, request);
  }

  /**
   * Tokens of a request's messages by group of the log; they add up to `requests.messages`.
   * @param {number} request
   * @returns {Int32Array} used again by the next call
   */
  logSums(request) {
    shareOut(this.sumTable.of(request), this.requests.messages[request], this.logShares);
    return this.logShares;
  }

  /**
   * Tokens of a request's messages by group of the screen; they add up to `requests.messages`.
   * @param {number} request
   * @returns {Int32Array}
   */
  sums(request) {
    const sums = new Int32Array(SCREEN_GROUPS.length);
    this.logSums(request).forEach((tokens, group) => {
      sums[groupOf(group)] += tokens;
    });
    return sums;
  }

  /** The last request at or before a position; -1 if there is none. @param {number} position */
  requestAt(position) {
    return lastNotAbove(this.requests.position, position);
  }

  /** A request's name as the command line writes it: `2.3`, or `@48` outside a turn or an iteration. @param {number} request */
  name(request) {
    const { turn, iteration, position } = this.requests;
    if (turn[request] < 0 || iteration[request] < 0) return `@${position[request]}`;
    return `${turn[request]}.${iteration[request]}`;
  }

  /**
   * The request that a person means by `7.4`, `7` (the last of turn 7) or `@336`; -1 if none.
   * @param {string} written
   */
  requestNamed(written) {
    const [, position, of, at] = /^\s*(?:@\s*(\d+)|(\d+)(?:\.(\d+))?)\s*$/.exec(written) ?? [];
    if (position !== undefined) return this.requestAt(Number(position));
    const { turn, iteration } = this.requests;
    return turn.findLastIndex((one, request) =>
      one === Number(of) && (at === undefined || iteration[request] === Number(at)));
  }

  /** @param {number} request */
  previousOf(request) {
    return request > 0 ? request - 1 : -1;
  }

  /** The loss that is suspected at a request; null if none is. @param {number} request */
  lossAt(request) {
    const at = this.requests.position[request];
    return this.losses.find(({ position }) => position === at) ?? null;
  }

  /** The applied compactions after request `from` and before request `to`. @param {number} from @param {number} to */
  compactionsBetween(from, to) {
    const [start, end] = [from, to].map((request) => this.requests.position[request] ?? -1);
    return this.compactions.filter((one) => one.number > 0 && one.position > start && one.position < end);
  }

  /** @param {number} request @returns {WordsOut[]} */
  wordsOutOfView(request) {
    return this.wordsTable.outOf(this, request);
  }
}

/** @template T @param {T[]} list @param {T[]} more */
function appendAll(list, more) {
  for (const one of more) list.push(one);
}
